"""Pictures with boxes, pictures with captions, and a detection loss that needs no matching."""

import torch
from torch.nn import functional

PICTURES, QUERIES, CLASSES = 2, 8, 4
PICTURE_TOKEN, PICTURE_TOKENS = 255, 16


def scenes(step: int):
    """Pictures float32 (2, 3, 64, 64), a class for each query int64 (2, 8), the last for nothing, boxes (2, 8, 4)."""
    generator = torch.Generator().manual_seed(step)
    return {
        "pixel_values": torch.randn(PICTURES, 3, 64, 64, generator=generator),
        "classes": torch.randint(0, CLASSES + 1, (PICTURES, QUERIES), generator=generator),
        "boxes": torch.rand(PICTURES, QUERIES, 4, generator=generator),
    }


def in_order(output, batch):
    """Cross entropy of the classes and L1 of the boxes, query by query.

    The usual loss first matches queries with objects by scipy's linear_sum_assignment, on the host.
    """
    classes = functional.cross_entropy(output.logits.flatten(0, 1), batch["classes"].flatten())
    return classes + 5.0 * functional.l1_loss(output.pred_boxes, batch["boxes"])


def captioned(step: int):
    """Four pictures float32 (4, 3, 64, 64) and their captions, int64 (4, 12), ended by the last token."""
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(2, 255, (4, 12), generator=generator)
    ids[:, -1] = 255
    return (), {
        "input_ids": ids,
        "pixel_values": torch.randn(4, 3, 64, 64, generator=generator),
        "attention_mask": torch.ones_like(ids),
        "return_loss": True,
    }


def shown_and_told(step: int):
    """Two pictures, and texts int64 (2, 32) whose first 16 tokens stand for the picture."""
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(3, 255, (PICTURES, 32), generator=generator)
    ids[:, :PICTURE_TOKENS] = PICTURE_TOKEN
    labels = ids.clone()
    labels[:, :PICTURE_TOKENS] = -100
    return (), {
        "input_ids": ids,
        "pixel_values": torch.randn(PICTURES, 3, 64, 64, generator=generator),
        "attention_mask": torch.ones_like(ids),
        "labels": labels,
    }
