/// What tests may change (standInSet, and STAND_IN_… in the environment).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace stand_in {

// Name and value at the start. "The nth" counts from the setting on, from 1; -1 is none.
#define STAND_IN_SETTINGS(X)                                                                                    \
  X(delay_us, 50)                   /* longest delay before a task of a stream starts */                        \
  X(seed, 1)                        /* of these delays and of masks */                                          \
  X(memory_bytes, 2147483648)       /* of each device; from aclInit on */                                       \
  X(devices, 2)                     /* from aclInit on; negative: counting them fails */                        \
  X(dry, 0)                         /* shapes and counts alone: nothing is computed; from aclInit on */         \
  X(fp32_output, 1)                 /* Mm, BatchMatMul: FP32 out of FP16 or BF16 operands; 2: half of it; 3: */ \
                                    /* rounded to the operands' type */                                         \
  X(gaps, 0)                        /* in results of operators whose entry points are generated: refused; 1: */ \
                                    /* written as if there were none, as the vendor's do */                     \
  X(order_of_sums, 3)               /* fixed where asked for: 1: by the context, 2: by the process, 3: by */    \
                                    /* both; 0: always */                                                       \
  X(failure_mode, 1)                /* 0: aclrtSetStreamFailureMode is not supported (207000) */                \
  X(ignore_waits, 0)                /* 1: streams don't wait for events */                                      \
  X(mixed_adamw, 0)                 /* ApplyAdamWV2: FP16 or BF16 gradients of FP32 parameters */               \
  X(fail_allocation, -1)            /* the nth aclrtMalloc or aclrtMallocPhysical finds no memory */            \
  X(fail_allocations_from, -1)      /* and all from the nth on */                                               \
  X(fail_host_allocation, -1)       /* the nth aclrtMallocHost finds no memory */                               \
  X(fail_host_allocations_from, -1) /* and all from the nth on */                                               \
  X(fail_stream, -1)                /* the nth aclrtCreateStream fails (207001) */                              \
  X(kernel_error_at, -1)            /* the nth launch ends with an exception (507015) */                        \
  X(lose_device_at, -1)             /* with the nth launch the device is lost (507899) */                       \
  X(hang_at, -1)                    /* the nth task of a stream never ends */                                   \
  X(vmm, 1)                         /* 0: no virtual memory management (207000) */                              \
  X(init_error, 0)                  /* what aclInit returns */                                                  \
  X(set_device_error, -1)           /* the device whose aclrtSetDevice fails */                                 \
  X(missing_kernels, 0)             /* 1: phase 1 of all operators returns 561112 */                            \
  X(check_streams, 1)               /* faults where streams use memory without order */                         \
  X(late_frees, 1)                  /* faults where memory is freed that the host does not know to be unused */ \
  X(check_tails, 1)                 /* faults where less than 32 bytes are behind an operand */                 \
  X(check_pinned, 1)                /* faults where a copy's pinned source changes before the copy */           \
  X(check_leaks, 0) /* setting it reports now what is left, as aclFinalize does; in the environment: at exit */ \
  X(verbose, 0)     /* faults are written to stderr at once */

struct Settings {
#define STAND_IN_FIELD(name, value) std::atomic<std::int64_t> name{value};
  STAND_IN_SETTINGS(STAND_IN_FIELD)
#undef STAND_IN_FIELD

  /// The setting of that name, or null.
  std::atomic<std::int64_t>* find(const std::string& name) {
#define STAND_IN_FIND(field, value) \
  if (name == #field) return &field;
    STAND_IN_SETTINGS(STAND_IN_FIND)
#undef STAND_IN_FIND
    return nullptr;
  }
};

/// Counts a countdown: whether this is the nth.
inline bool strikes(std::atomic<std::int64_t>& countdown) {
  std::int64_t left = countdown;
  while (left > 0)
    if (countdown.compare_exchange_weak(left, left == 1 ? -1 : left - 1)) return left == 1;
  return false;
}

/// The same of two countdowns: whether this is the nth of the first, or the second's or one after it.
inline bool strikes(std::atomic<std::int64_t>& nth, std::atomic<std::int64_t>& from) {
  const bool is_nth = strikes(nth);
  std::int64_t left = from;
  while (left > 1)
    if (from.compare_exchange_weak(left, left - 1)) return is_nth;
  return is_nth || left == 1;
}

}  // namespace stand_in
