"""A decoder word by word: a growing cache, greedy, sampled by rank and by sum, beams, an early end."""

import torch
import torch.nn.functional as F
from report import DEVICE, bits, loss
from torch import nn

WIDTH, HEADS, WORDS = 32, 4, 60
torch.manual_seed(0)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ask, self.keys = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.out, self.gate = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH)
        self.norm = nn.RMSNorm(WIDTH)

    def forward(self, x, cache, place):
        y = self.norm(x)
        b, t, _ = y.shape
        q, (k, v) = self.ask(y).view(b, t, HEADS, -1), self.keys(y).view(b, t, 2, 2, -1).unbind(2)
        q, k = turned(q, place).transpose(1, 2), turned(k, place).transpose(1, 2)
        v = v.transpose(1, 2)
        if cache:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        cache[:] = [k, v]
        mask = torch.ones(t, k.shape[2], dtype=torch.bool, device=x.device).tril(k.shape[2] - t)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, -1))
        return x + F.silu(self.gate(x)) * x


def turned(x, place):
    angle = place[:, None] / 100 ** (torch.arange(0, x.shape[-1], 2, device=x.device) / x.shape[-1])
    turn = torch.polar(torch.ones_like(angle), angle)
    return torch.view_as_real(torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2)) * turn[:, None]).flatten(3)


words, layers = nn.Embedding(WORDS, WIDTH).to(DEVICE), nn.ModuleList(Layer() for _ in range(2)).to(DEVICE)


def ahead(ids, caches, begin):
    x = words(ids)
    place = torch.arange(begin, begin + ids.shape[1], device=DEVICE).float()
    for layer, cache in zip(layers, caches, strict=True):
        x = layer(x, cache, place)
    return F.linear(x[:, -1], words.weight)


@torch.no_grad()
def generate(ids, how, count):
    caches = [[] for _ in layers]
    whole, given = ids, ids
    done = torch.zeros(len(ids), dtype=torch.bool, device=DEVICE)
    for _ in range(count):
        out = ahead(given, caches, whole.shape[1] - given.shape[1])
        given = how(out)
        given = torch.where(done[:, None], torch.zeros_like(given), given)
        done |= given[:, 0] == 7
        whole = torch.cat([whole, given], 1)
        if done.all():
            break
    return whole


def best(out):
    return out.argmax(-1, keepdim=True)


def of_best(out):
    least = out.topk(10).values[:, -1:]
    return torch.multinomial(out.masked_fill(out < least, -torch.inf).softmax(-1), 1)


def of_sum(out):
    chances, order = (out / 0.8).softmax(-1).sort(descending=True)
    chances[chances.cumsum(-1) - chances > 0.7] = 0
    return order.gather(-1, torch.multinomial(chances, 1))


@torch.no_grad()
def beams(ids, width, count):
    caches = [[] for _ in layers]
    out = F.log_softmax(ahead(ids, caches, 0), -1)
    score, given = out[0].topk(width)
    whole = torch.cat([ids.expand(width, -1), given[:, None]], 1)
    for cache in caches:
        cache[:] = [part.expand(width, -1, -1, -1).contiguous() for part in cache]
    for _ in range(count):
        out = F.log_softmax(ahead(whole[:, -1:], caches, whole.shape[1] - 1), -1) + score[:, None]
        score, flat = out.flatten().topk(width)
        source, word = flat // WORDS, flat % WORDS
        whole = torch.cat([whole[source], word[:, None]], 1)
        for cache in caches:
            cache[:] = [part.index_select(0, source) for part in cache]
    return whole, score


prompt = torch.randint(8, WORDS, (3, 5)).to(DEVICE)
torch.manual_seed(1)
for how in (best, of_best, of_sum):
    made = generate(prompt, how, 12)
    bits(made)
    print(made[0].tolist())
found, score = beams(prompt[:1], 3, 8)
bits(found, score)
loss(score.max())
