#include "lora/optim/clip.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "lora/cpu/kernels/elementwise.hpp"
#include "lora/cpu/kernels/reduce.hpp"
#include "lora/tensor/transfer.hpp"

namespace clip_test {

using namespace lora;
using namespace lora::optim;

TEST_CASE("clip: the factor is PyTorch's, never above one, and one where clipping is off") {
  CHECK(clip_factor(4, 1) == 1 / (4 + 1e-6));
  CHECK(clip_factor(0.5, 1) == 1);
  CHECK(clip_factor(0, 1) == 1);
  CHECK(clip_factor(1e9, 0) == 1);
  CHECK(clip_factor(1e9, -1) == 1);
  CHECK(clip_factor(1, 1) == 1 / (1 + 1e-6));  // as PyTorch has it, a little below one at the limit itself
  CHECK(clip_factor(3, 0.5) == 0.5 / (3 + 1e-6));
  CHECK(clip_factor(std::numeric_limits<double>::infinity(), 1) == 0);
}

TEST_CASE("clip: the norm is over all gradients together and adds to what was there") {
  cpu::Device dev(1);
  nn::ParamStore<cpu::Device, float> params;
  const auto a = params.add(1, 2), b = params.add(2, 1, 1);  // two groups
  params.name(a, "a", 0, 1);
  params.name(b, "b", 0, 2);
  params.build(dev);
  copy_from_host<cpu::Device, float>(dev, std::vector<float>{3, 0}, a.grad());
  copy_from_host<cpu::Device, float>(dev, std::vector<float>{0, 4}, b.grad());
  auto out = tensor_of<double>(dev, std::vector<double>{11}, 1, 1);
  add_squared_norm(dev, params, out.view());
  CHECK(to_host(dev, out.view())[0] == 36);
}

}  // namespace clip_test
