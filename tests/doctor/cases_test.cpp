// What each check of a kernel is: how its results are told, by which bounds, and of which numbers they are. A check
// that tries less than it says is right wherever its kernel is.

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "lora/doctor/kernel_rows.hpp"
#include "support/small_sizes.hpp"

namespace cases_test {

using namespace lora;
using namespace lora::doctor;
using D = cpu::Device;

namespace {

/// How many numbers there are, and their magnitudes, those of neighbors with other weights.
std::string measure_of(const std::vector<double>& numbers) {
  double sum = 0;
  std::size_t others = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (std::isfinite(numbers[i]))
      sum += std::fabs(numbers[i]) * static_cast<double>(1 + i % 7);
    else
      ++others;
  return concat(numbers.size(), ", ", significant(sum, 6), others > 0 ? concat(", ", others, " not finite") : "");
}

/// Of the two types that results have here, the one that has this limit.
std::string_view type_of(double limit, double (*of)(Precision)) {
  return limit == of(Precision::bfloat16) ? " bf16" : limit == of(Precision::float32) ? " f32" : " ?";
}

}  // namespace

TEST_CASE("cases: each output has its bounds, its type, and numbers that its operands and the kernel give") {
  const std::string expected = R"(products, c = a bᵀ, timed: c: 4/256 bf16 in bf16: 640, 5371.27
products, c = a b, timed: c: 4/256 bf16 in bf16: 640, 5388.77
products, c = aᵀ b: c: 4/256 bf16 in bf16: 640, 5381.69
products, c += a bᵀ / 2: c: 4/256 bf16 in bf16: 640, 2967.31
products, c += a b / 2: c: 4/256 bf16 in bf16: 640, 2968.95
products, c += aᵀ b / 2: c: 4/256 bf16 in bf16: 640, 2876.5
products, c = a bᵀ in float32, timed: c: 4/256 bf16 in f32: 640, 5371.27
products, c = a b in float32: c: 4/256 bf16 in f32: 640, 5388.77
products, c = aᵀ b in float32: c: 4/256 bf16 in f32: 640, 5381.69
products, c += a bᵀ / 2 in float32: c: 4/256 bf16 in f32: 640, 2955.84
products, c += a b / 2 in float32: c: 4/256 bf16 in f32: 640, 2936.23
products, c += aᵀ b / 2 in float32, timed: c: 4/256 bf16 in f32: 640, 2958.22
products, y = x Wᵀ + h B + bias, timed: y: 4/256 bf16 in bf16: 640, 5498.2
products, y += x Wᵀ + h B + bias: y: 4/256 bf16 in bf16: 640, 5705.72
low rank, backward, timed: dh: 4/256 bf16 in bf16: 160, 1407.17
low rank, backward, timed: db: 4/256 bf16 in f32: 128, 593.562
low rank, backward, timed: db 2: 4/256 bf16 in f32: 64, 347.813
low rank, gradients, timed: da: 4/256 bf16 in f32: 512, 13035.4
low rank, gradients, timed: db: 4/256 bf16 in f32: 128, 5478.42
norm, rms_norm, timed: y: 4/16 bf16 in bf16: 1280, 4574.49
norm, rms_norm, timed: rstd: 64/64 f32 in f32: 20, 44.7789
norm, rms_norm, timed: copy: 0/0 bf16 in bf16: 1280, 7657.47
norm, rms_norm of heads: y: 4/16 bf16 in bf16: 5120, 18455.4
norm, rms_norm of heads: rstd: 64/64 f32 in f32: 40, 89.8226
norm, backward, timed: dx: 4/16 bf16 in bf16: 1280, 2832.14
norm, backward, timed: y: 4/16 bf16 in bf16: 1280, 4375.56
norm, backward of heads: dx: 4/16 bf16 in bf16: 5120, 11403.5
norm, backward of heads: y: 4/16 bf16 in bf16: 5120, 17448.3
norm, weight gradient, timed: dw: 4/64 bf16 in f32: 64, 524.87
rope, forward, timed: y: 4/16 bf16 in bf16: 1024, 2125.88
rope, inverse: y: 4/16 bf16 in bf16: 1024, 2122.52
attention, heads of 64: out: 8/64 bf16 in bf16: 1024, 3323.99
attention, heads of 64, backward: dq: 16/128 bf16 in bf16: 1024, 428.511
attention, heads of 64, backward: dk: 16/128 bf16 in bf16: 512, 445.727
attention, heads of 64, backward: dv: 16/128 bf16 in bf16: 512, 975.976
attention, heads of 64, a tree: out: 8/64 bf16 in bf16: 1024, 2716.78
attention, heads of 64, a tree, backward: dq: 16/128 bf16 in bf16: 1024, 768.153
attention, heads of 64, a tree, backward: dk: 16/128 bf16 in bf16: 512, 586.793
attention, heads of 64, a tree, backward: dv: 16/128 bf16 in bf16: 512, 783.732
attention, heads of 128, timed: out: 8/64 bf16 in bf16: 2048, 6524.33
attention, heads of 128, backward, timed: dq: 16/128 bf16 in bf16: 2048, 738.694
attention, heads of 128, backward, timed: dk: 16/128 bf16 in bf16: 1024, 659.094
attention, heads of 128, backward, timed: dv: 16/128 bf16 in bf16: 1024, 2048.55
attention, decoding, timed: out: 8/64 bf16 in bf16: 768, 1200.42
activation, swiglu, timed: y: 4/16 bf16 in bf16: 960, 33414.8
activation, swiglu, backward, timed: d_gate_up: 4/16 bf16 in bf16: 1920, 7985.55
activation, swiglu, backward, timed: y: 4/16 bf16 in bf16: 960, 33414.8
activation, geglu: y: 4/16 bf16 in bf16: 960, 33437
activation, geglu, backward: d_gate_up: 4/16 bf16 in bf16: 1920, 7878.46
activation, geglu, backward: y: 4/16 bf16 in bf16: 960, 33437
embedding, embedding, timed: y: 0/0 bf16 in bf16: 640, 1310.18
embedding, backward, timed: dtable: 64/64 f32 in f32: 1280, 2909.5
embedding, noise: y: 4/16 bf16 in bf16: 256, 497.768
loss, cross entropy, timed: loss: 64/64 f32 in f32: 20, 562.609
loss, cross entropy, timed: target: 0/0 f32 in f32: 20, 321.537
loss, cross entropy, timed: top: 0/0 f32 in f32: 20, 599.128
loss, cross entropy, timed: gradient: 4/64 bf16 in bf16: 800, 17.5538
optimizer, AdamW, three steps, timed: value: 64/64 f32 in f32: 1500, 2982.26
optimizer, AdamW, three steps, timed: m: 64/64 f32 in f32: 1500, 409.817
optimizer, AdamW, three steps, timed: v: 1024/1024 f32 in f32: 1500, 1.51204
elementwise, fill: y: 0/0 bf16 in bf16: 640, 957.75
elementwise, fill: zeros: 0/0 bf16 in bf16: 640, 0
elementwise, to float32, timed: y: 0/0 f32 in f32: 640, 1330.3
elementwise, to float32, timed: sum: 4/4 f32 in f32: 640, 1311.12
elementwise, from float32, timed: y: 1.001/2 bf16 in bf16: 640, 378.783
elementwise, from float32, timed: sum: 2/4 bf16 in bf16: 640, 1293.28
elementwise, scale: y: 1.001/2 bf16 in bf16: 640, 378.783
elementwise, halves to even: y: 0/0 bf16 in bf16: 64, 253.001
elementwise, add_bias: y: 2/4 bf16 in bf16: 640, 1658.08
elementwise, gather_rows: y: 0/0 bf16 in bf16: 320, 672.408
elementwise, scatter_rows: y: 0/0 bf16 in bf16: 640, 1208.73
elementwise, dropout, timed: y: 4/16 bf16 in bf16: 1280, 7658.68
elementwise, dropout, timed: mean of what is kept: 1677.72/1677.72 f32 in bf16: 1, 1.6706
elementwise, dropout, added: y: 4/16 bf16 in bf16: 1280, 7834.06
reduce, column_sums, timed: out: 64/64 f32 in f32: 64, 424.767
reduce, sums of squares, timed: blocks: 64/64 f32 in f32: 2, 676.866
reduce, sums of squares, timed: total: 64/64 f32 in f32: 1, 763.685
quantize, decode: y: 0/0 bf16 in bf16: 2048, 4108.11
quantize, decode Q8_0, timed: y: 2/2 bf16 in bf16: 2048, 2962.5
quantize, decode with update: y: 64/64 f32 in f32: 2048, 5823.65
non-finite, products: c: 4/256 bf16 in bf16: 128, 3.3575e+08, 64 not finite
non-finite, numbers: y: 1.001/1 bf16 in bf16: 8, 1.02312e+06, 3 not finite
non-finite, numbers: squares: 0/0 f32 in f32: 2, 1.024e+63, 1 not finite
streams, copies and kernels that wait for each other: numbers of each round: 0/0 bf16 in bf16: 819200, 4.16156e+08
)";
  D dev(1);
  const Sizes sizes = test::small_sizes(20);
  std::string found;
  const auto narrow = cases<D, bf16>();
  for (const Case<D, bf16>& one : narrow) {
    const std::vector<Output> given = outputs_of(one.on_device, dev, Precision::bfloat16, sizes),
                              exact = outputs_of(one.reference, dev, Precision::float32, sizes);
    REQUIRE(given.size() == exact.size());
    for (std::size_t i = 0; i < given.size(); ++i)
      found += concat(one.family, ", ", one.kernel, one.timed ? ", timed: " : ": ", given[i].name, ": ",
                      significant(given[i].bound, 6), "/", significant(exact[i].bound, 6),
                      type_of(given[i].roundoff, roundoff), " in", type_of(given[i].overflow, overflow), ": ",
                      measure_of(exact[i].values), "\n");
  }
  CHECK(found == expected);
}

}  // namespace cases_test
