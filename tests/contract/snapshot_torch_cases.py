"""What people have in notebooks that train, as `snapshot_cases` has the rest."""

from __future__ import annotations

from tests.contract.snapshot_cases import Case, kept, refused

#: A model of the notebook's own with every kind of state, and one step of its training. `copied` is what both will be
#: compared with; `ahead` is where one more step leads to.
TRAINING = """
import copy, torch
from torch import nn
torch.manual_seed(1)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.first, self.norm = nn.Embedding(10, 8), nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16)
        self.last = self.tied = nn.Linear(16, 2)
        self.register_buffer('seen', torch.zeros((), dtype=torch.int64))
    def forward(self, x):
        self.seen += len(x)
        return self.last(self.norm(self.first(self.words(x))).relu())
def step(model, how):
    how.zero_grad(); loss = nn.functional.cross_entropy(model(rows), right); loss.backward(); how.step()
    return loss
def same(a, b):
    if isinstance(a, dict): return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)): return len(a) == len(b) and all(map(same, a, b))
    return torch.equal(a, b) and a.dtype == b.dtype if torch.is_tensor(a) else a == b
rows, right = torch.randint(0, 10, (32,)), torch.randint(0, 2, (32,))
net = Net()
"""


def optimizer(name: str, made: str) -> Case:
    """An optimizer in the middle of a training: its state is equal, its parameters are the model's, and its next step
    leads where it would have led."""
    cell = (
        f"m_{name} = Net(); {name} = torch.optim.{made.format(f'm_{name}.parameters()')}\n"
        f"for _ in range(3): step(m_{name}, {name})\n"
        f"k_{name} = copy.deepcopy(({name}.state_dict(), m_{name}.state_dict()))\n"
        f"a_model, a_how = copy.deepcopy((m_{name}, {name})); step(a_model, a_how)\n"
        f"a_{name} = copy.deepcopy((a_how.state_dict(), a_model.state_dict())); del a_model, a_how"
    )
    states = f"({name}.state_dict(), m_{name}.state_dict())"
    holds = (
        f"same({states}, k_{name}) and {name}.param_groups[0]['params'][0] is m_{name}.words.weight"
        f" and step(m_{name}, {name}) is not None and same({states}, a_{name})"
    )
    return kept(name, cell, holds)


TORCH = [
    kept("net", f"{TRAINING}\ncopied = copy.deepcopy(net.state_dict())", "same(net.state_dict(), copied)"),
    kept("tied", "tied = net.last", "tied is net.tied and net.last is tied and type(net) is Net"),
    optimizer("sgd", "SGD({}, lr=0.1, momentum=0.9, nesterov=True)"),
    optimizer("adam", "Adam({}, lr=1e-2, amsgrad=True)"),
    optimizer("adamw", "AdamW({}, lr=1e-2, weight_decay=0.1)"),
    optimizer("rmsprop", "RMSprop({}, lr=1e-3, momentum=0.5, centered=True)"),
    kept(
        "groups",
        "groups = torch.optim.Adam([{'params': net.first.parameters(), 'lr': 0.5}, {'params': [net.last.bias]}])",
        "groups.param_groups[0]['initial_lr'] == 0.5 and groups.param_groups[1]['params'][0] is net.last.bias",
    ),
    kept(
        "schedule",
        "schedule = torch.optim.lr_scheduler.StepLR(groups, 2, 0.5)\n"
        "for _ in range(3): groups.step(); schedule.step()\nrate = schedule.get_last_lr()",
        "schedule.optimizer is groups and schedule.last_epoch == 3 and schedule.get_last_lr() == rate"
        " and groups.param_groups[0]['lr'] == rate[0] == 0.25",
    ),
    kept(
        "between",
        "between = nn.Linear(3, 2); between(torch.ones(3)).sum().backward(); gradient = between.weight.grad.clone()",
        "torch.equal(between.weight.grad, gradient) and between.weight.is_leaf and between.weight.requires_grad",
    ),
    kept(
        "loss",
        "loss = step(other := Net(), torch.optim.SGD(other.parameters())); value = loss.item()",
        "loss.item() == value and loss.is_leaf",  # what it was computed of is not kept
    ),
    kept(
        "kinds",
        "kinds = [torch.tensor(3.5), torch.zeros(0, 3), torch.ones(3, dtype=torch.bfloat16), torch.tensor([1j]),\n"
        "torch.tensor([True]), torch.tensor([-3], dtype=torch.int8), torch.eye(3).to_sparse()]",
        "kinds[0] == 3.5 and kinds[1].shape == (0, 3) and kinds[2].dtype == torch.bfloat16 and kinds[3][0] == 1j"
        " and kinds[4][0] and kinds[5][0] == -3 and torch.equal(kinds[6].to_dense(), torch.eye(3))",
    ),
    kept("wide", "wide = torch.arange(400_000.).reshape(4, -1)", "torch.equal(wide.ravel(), torch.arange(400_000.))"),
    kept(
        "window",
        "window = wide[1:, ::2]; turned = wide.t()",
        "(wide.__setitem__((1, 0), -5.), window[0, 0].item(), turned[0, 1].item())[1:] == (-5.0, -5.0)",
    ),
    kept("grows", "grows = torch.zeros(100_000)", "grows.resize_(200_000).shape == (200_000,)"),
    kept("spread", "spread = torch.ones(1).expand(1_000_000)", "spread.stride() == (0,) and spread.sum() == 1e6"),
    kept("marked", "marked = torch.ones(2); marked.word = 'mine'", "marked.word == 'mine' and marked.sum() == 2"),
    kept(
        "dice",
        "dice = torch.Generator().manual_seed(3); torch.rand(2, generator=dice)\n"
        "thrown = torch.rand(5, generator=torch.Generator().manual_seed(3))",
        "torch.equal(torch.rand(3, generator=dice), thrown[2:])",
    ),
    kept(
        "data",
        "data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows, right), batch_size=8, shuffle=True)",
        "len(data) == 4 and data.dataset.tensors[0] is rows",
    ),
    kept(
        "things",
        "things = [torch.device('cpu'), torch.float16, torch.relu, torch.Size([2]), nn.CrossEntropyLoss()]",
        "things[0].type == 'cpu' and things[1] is torch.float16 and things[2] is torch.relu and things[3] == (2,)",
    ),
    refused("batches", "unpicklable", "batches = iter(data)"),
    refused("script", "unpicklable", "script = torch.jit.script(nn.Linear(2, 2))"),
    refused("empty_shape", "unpicklable", "empty_shape = torch.empty(3, device='meta').untyped_storage()"),
]
