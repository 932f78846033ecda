"""`python -m robustdeq` is the `robustdeq` command."""

import sys

from robustdeq.cli.main import main

sys.exit(main())
