#!/bin/sh
# Fine-tunes on two machines of eight NPUs each. Run it on both, with the number of each and the address of the first:
#
#   NODE_RANK=0 MASTER_ADDR=192.168.1.10 examples/two_nodes.sh --model_name_or_path MODEL --dataset DATA --output_dir OUT
#   NODE_RANK=1 MASTER_ADDR=192.168.1.10 examples/two_nodes.sh --model_name_or_path MODEL --dataset DATA --output_dir OUT
#
# OUT must be the same folder on both. NNODES and NPUS (of each) may be others, MASTER_PORT another than 29500. What
# ended early goes on when the same is run again: a loop around it restarts it.
set -eu
: "${NODE_RANK:?of this machine, from 0 on}" "${MASTER_ADDR:?the address of the machine with NODE_RANK 0}"
lora=${LORA:-"$(dirname "$0")/../build/release/bin/lora"}
exec "$lora" launch --nproc_per_node "${NPUS:-8}" --nnodes "${NNODES:-2}" train --device ascend \
  --resume_from_checkpoint auto "$@"
