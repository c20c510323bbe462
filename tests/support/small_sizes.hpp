#pragma once

#include "lora/doctor/kernel_rows.hpp"

namespace lora::test {

/// Extents of the doctor's checks that are all different, and small. Of 20 rows dropout's checks have two sequences.
inline doctor::Sizes small_sizes(Index rows) {
  doctor::Sizes sizes;
  sizes.rows = rows;
  sizes.width = 64;
  sizes.out = 32;
  sizes.rank = 4;
  sizes.heads = 2;
  sizes.kv_heads = 1;
  sizes.ffn = 48;
  sizes.vocabulary = 40;
  sizes.parameters = 1500;
  sizes.sequences = {1, 5, 2};
  return sizes;
}

}  // namespace lora::test
