#!/bin/sh
# The evaluations of results/README.md, the cheapest answers first; of the parts on 200 images only the audit is here yet (aware grid,
# AutoAttack on the defence, T_f x R follow when the grids say which attacks are strongest). From the top of the repository:
#   results/evaluate.sh data
# where `data` holds cifar-10-batches-py. Killed or stopped, it goes on where it was; two processes share each store.
set -eu
data=${1:?where is the folder that holds cifar-10-batches-py?}
export OMP_NUM_THREADS=1

evaluate() {
  torchrun --standalone --nproc_per_node 2 -m robustdeq.cli.main evaluate "$@" --data-root "$data" --batch-size 500
}

for name in resnet-trades resnet-pgdat; do
  evaluate "cifar10-tiny-$name" --suite results/suites/resnet.yaml --limit 1000 --out "runs/results/$name"
done
for name in trades-random trades pgdat-random pgdat; do
  evaluate "cifar10-tiny-$name" --suite results/suites/undefended.yaml --limit 1000 --out "runs/results/$name"
done
for name in trades-random trades; do
  evaluate "cifar10-tiny-$name" --defence entropy --suite audit --limit 200 --out "runs/results/$name-audit"
done
for store in runs/results/*/; do
  python results/condense.py "$store" "results/stores/$(basename "$store")"
done
robustdeq report runs/results/*/ runs/final/*/ --out results/report
