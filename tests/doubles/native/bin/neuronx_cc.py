"""A double of the neuronx-cc command: takes its time, says what a failing compiler says, and ends.

Called as ``neuronx-cc SECONDS CODE``. A failing one ends with 70 and says so on the terminal. [USER-B3]
"""

import sys
import time

time.sleep(float(sys.argv[1]))
code = int(sys.argv[2])
if code:
    # [PUB-2.32] error-codes: NCC_EVRF029 was seen by users for sort; the code's own page says nothing of it.
    sys.stderr.write("[ERROR] [NCC_EVRF029] Operation is not supported on this target.\n")
sys.exit(code)
