"""transformers' Trainer, as in its examples."""

import sys
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed


class Tokens(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        ids = torch.randint(0, 100, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": ids, "labels": ids}


class Say(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            print(f"loss {float(logs['loss']):.6f}", flush=True)


set_seed(0)
model = GPT2LMHeadModel(
    GPT2Config(
        n_layer=1,
        n_head=2,
        n_embd=32,
        n_positions=16,
        vocab_size=100,
        bos_token_id=0,
        eos_token_id=0,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        per_device_train_batch_size=8,
        max_steps=20,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        learning_rate=1e-3,
        disable_tqdm=True,
        use_cpu="--cpu" in sys.argv,
    )
    Trainer(model, arguments, train_dataset=Tokens(), callbacks=[Say()]).train()
