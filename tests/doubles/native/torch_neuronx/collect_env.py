"""``python -m torch_neuronx.collect_env``. That it has a line of this kind is said; its form is in no public source."""

import sys

from torch_neuronx._build_config import BEHAVIOUR

if __name__ == "__main__":
    sys.stdout.write(BEHAVIOUR["collect_env"] + "\n")
