#!/bin/sh
# The evaluations of results/README.md. From the top of the repository:
#   results/evaluate.sh data [model...]
# where `data` holds cifar-10-batches-py; without models, all six. Killed or stopped, it goes on where it was; two processes share each store.
set -eu
data=${1:?where is the folder that holds cifar-10-batches-py?}
shift
[ $# -gt 0 ] || set -- trades-random trades pgdat-random pgdat resnet-trades resnet-pgdat
export OMP_NUM_THREADS=1

evaluate() { # model, folder, further flags
  model=$1 out=$2
  shift 2
  torchrun --standalone --nproc_per_node 2 -m robustdeq.cli.main evaluate "cifar10-tiny-$model" --out "runs/results/$out" \
    --data-root "$data" --batch-size 250 --shard-size 250 "$@"
}

for name; do
  case $name in
    resnet-*) evaluate "$name" "$name" --suite results/suites/resnet.yaml --limit 1000 ;;
    *) evaluate "$name" "$name" --suite results/suites/undefended.yaml --limit 1000 ;;
  esac
done
for name; do
  case $name in
    trades | trades-random)
      evaluate "$name" "$name-variants" --suite "results/suites/variants-$name.yaml" --limit 200
      evaluate "$name" "$name-settings" --suite "results/suites/settings-$name.yaml" --limit 200
      evaluate "$name" "$name-aware" --suite "results/suites/aware-$name.yaml" --defence entropy --aware --limit 200
      evaluate "$name" "$name-aware-sign" --suite "results/suites/aware-$name.yaml" --defence entropy --defence.direction sign --aware --limit 200
      evaluate "$name" "$name-paper" --suite paper --defence entropy --limit 200
      evaluate "$name" "$name-audit" --suite audit --defence entropy --limit 200
      ;;
  esac
done
for store in runs/results/*/; do
  python results/condense.py "$store" "results/stores/$(basename "$store")"
done
robustdeq report runs/results/*/ runs/final/*/ --out results/report
