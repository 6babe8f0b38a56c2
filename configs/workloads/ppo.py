"""PPO on a made-up environment: actions are drawn, advantages estimated backwards in time, losses clipped."""

import torch
from torch import nn

STEPS, STATE, ACTIONS = 16, 8, 4


class ActorCritic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(STATE, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.policy, self.value = nn.Linear(32, ACTIONS), nn.Linear(32, 1)

    def forward(self, states):
        seen = self.body(states)
        return torch.distributions.Categorical(logits=self.policy(seen)), self.value(seen).squeeze(-1)


def make_model():
    return ActorCritic()


def make_batch(step: int):
    """What the environment gave: states float32 (16, 8), rewards (16,), and where episodes ended, bool (16,)."""
    generator = torch.Generator().manual_seed(step)
    return {
        "states": torch.randn(STEPS, STATE, generator=generator),
        "rewards": torch.rand(STEPS, generator=generator),
        "ended": torch.rand(STEPS, generator=generator) < 0.1,
    }


def make_optimizer(params):
    return torch.optim.Adam(params, lr=3e-4, eps=1e-5)


def train_step(model, batch, optimizer):
    with torch.no_grad():
        before, values = model(batch["states"])
        actions = before.sample()
        known = before.log_prob(actions)
        advantages, last = [], torch.zeros((), device=values.device)
        goes_on = 1.0 - batch["ended"].float()
        for t in reversed(range(STEPS)):
            following = values[t + 1] if t + 1 < STEPS else 0.0
            last = batch["rewards"][t] + 0.99 * following * goes_on[t] - values[t] + 0.95 * 0.99 * goes_on[t] * last
            advantages.insert(0, last)
        advantage = torch.stack(advantages)
        returns = advantage + values
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy, value = model(batch["states"])
    ratio = (policy.log_prob(actions) - known).exp()
    clipped = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    loss = -clipped.mean() + 0.5 * (value - returns).square().mean() - 0.01 * policy.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    return loss
