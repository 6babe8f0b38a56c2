"""Speech recognition with CTC: convolutions, a bidirectional LSTM, one letter or none a frame."""

import torch
from torch import nn

MELS, LETTERS, FRAMES, LENGTH = 16, 12, 40, 6


class Recogniser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(MELS, 32, 5, stride=2, padding=2), nn.ReLU())
        self.rnn, self.out = nn.LSTM(32, 16, batch_first=True, bidirectional=True), nn.Linear(32, LETTERS)

    def forward(self, sound):
        seen, _ = self.rnn(self.stem(sound).transpose(1, 2))
        return self.out(seen).log_softmax(-1)


def make_model():
    return Recogniser()


def make_batch(step: int):
    """Spectrograms float32 (2, 16, 40) and letters int64 (2, 6); 0 stands for none."""
    generator = torch.Generator().manual_seed(step)
    return {
        "sound": torch.randn(2, MELS, FRAMES, generator=generator),
        "letters": torch.randint(1, LETTERS, (2, LENGTH), generator=generator),
    }


def loss_fn(output, batch):
    frames, letters = [output.shape[1]] * 2, [LENGTH] * 2
    return nn.functional.ctc_loss(output.transpose(0, 1), batch["letters"], frames, letters)
