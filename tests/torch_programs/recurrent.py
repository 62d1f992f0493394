"""LSTM, GRU and plain RNN, of several layers, in both directions, over packed sequences, and their cells."""

import torch
import torch.nn.functional as F
from report import DEVICE, bits, loss, weights
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

torch.manual_seed(0)
texts = [torch.randint(1, 50, (length,)) for length in (7, 5, 5, 2)]
lengths = torch.tensor([len(text) for text in texts])
labels = torch.tensor([0, 1, 1, 0])


class Reader(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], packed: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 12, padding_idx=0)
        self.inside = kind(12, 10, num_layers=2, batch_first=True, bidirectional=True, dropout=0.2)
        self.out = nn.Linear(20, 2)
        self.packed = packed

    def forward(self, x):
        y = self.words(x)
        if self.packed:
            y = pack_padded_sequence(y, lengths, batch_first=True, enforce_sorted=False)
            y, _ = pad_packed_sequence(self.inside(y)[0], batch_first=True)
        else:
            y, _ = self.inside(y)
        return self.out(y.amax(1))


for kind in (nn.LSTM, nn.GRU, nn.RNN):
    for packed in (False, True):
        torch.manual_seed(2)
        model = Reader(kind, packed).to(DEVICE)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        batch = pad_sequence(texts, batch_first=True).to(DEVICE)
        torch.manual_seed(3)
        for _ in range(3):
            value = F.cross_entropy(model(batch), labels.to(DEVICE))
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            loss(value)
        model.eval()
        with torch.no_grad():
            bits(model(batch))
        weights(model)
torch.manual_seed(4)
cells = nn.LSTMCell(4, 6).to(DEVICE), nn.GRUCell(6, 6).to(DEVICE), nn.RNNCell(6, 6, nonlinearity="relu").to(DEVICE)
hidden = torch.zeros(3, 6, device=DEVICE)
memory, state, last = hidden, hidden, hidden
for x in torch.randn(4, 3, 4):
    hidden, memory = cells[0](x.to(DEVICE), (hidden, memory))
    state = cells[1](hidden, state)
    last = cells[2](state, last)
last.sum().backward()
bits(last, *(p.grad for cell in cells for p in cell.parameters()))
narrow = nn.LSTM(4, 6, proj_size=3).to(DEVICE)
out, (h, c) = narrow(torch.randn(5, 2, 4).to(DEVICE))
bits(out, h, c)
