"""Actor and critic in a small world: sampled actions are read each step, returns are sorted and scattered."""

import torch
import torch.nn.functional as F
from report import DEVICE, loss, weights
from torch import nn
from torch.distributions import Categorical, Normal, kl_divergence

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3)).to(DEVICE)
critic = nn.Sequential(nn.Linear(4, 32), nn.ELU(), nn.Linear(32, 1)).to(DEVICE)
optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-2)
torch.manual_seed(1)
for episode in range(4):
    state, logs, values, rewards = [0.1 * episode, 0.0, 0.2, -0.1], [], [], []
    for _ in range(10):
        seen = torch.tensor(state, device=DEVICE)
        choice = Categorical(logits=actor(seen))
        action = choice.sample()
        logs.append(choice.log_prob(action))
        values.append(critic(seen).squeeze(-1))
        move = action.item() - 1
        state = [state[0] + 0.1 * move, state[1] * 0.9 + move, state[2] - 0.05, state[3] + 0.02 * state[1]]
        rewards.append(1.0 - abs(state[0]))
        if abs(state[0]) > 0.5:
            break
    returns, ahead = [], 0.0
    for reward in reversed(rewards):
        ahead = reward + 0.99 * ahead
        returns.insert(0, ahead)
    wanted = torch.tensor(returns, device=DEVICE)
    wanted = (wanted - wanted.mean()) / (wanted.std() + 1e-6)
    order = wanted.argsort(descending=True)
    shares = torch.zeros_like(wanted).scatter_(0, order, torch.linspace(1, 0, len(returns), device=DEVICE))
    guessed = torch.stack(values)
    better = wanted - guessed.detach()
    value = -(torch.stack(logs) * better * shares).mean() + F.smooth_l1_loss(guessed, wanted)
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
    loss(value)
    loss(kl_divergence(Normal(guessed.mean(), 1.0), Normal(torch.zeros((), device=DEVICE), 2.0)))
torch.manual_seed(3)
replay = torch.randn(64, 4).to(DEVICE)
torch.manual_seed(2)
priority = actor(replay).softmax(-1).amax(-1)
picked = torch.multinomial(priority.detach(), 16, replacement=True)
loss(critic(replay[picked]).mean())
loss(torch.where(priority > priority.median(), priority, -priority).cumsum(0)[-1])
weights(actor)
