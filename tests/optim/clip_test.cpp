#include "lora/optim/clip.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "lora/cpu/reduce.hpp"

namespace clip_test {

using namespace lora;
using namespace lora::optim;

TEST_CASE("clip: the factor is PyTorch's, never above one, and one where clipping is off") {
  CHECK(clip_factor(4, 1) == 1 / (4 + 1e-6));
  CHECK(clip_factor(0.5, 1) == 1);
  CHECK(clip_factor(0, 1) == 1);
  CHECK(clip_factor(1e9, 0) == 1);
  CHECK(clip_factor(std::numeric_limits<double>::infinity(), 1) == 0);
}

TEST_CASE("clip: the norm is over all gradients together and adds to what was there") {
  cpu::Device dev(1);
  auto a = tensor_of<float>(dev, std::vector<float>{3, 0}, 1, 2);
  auto b = tensor_of<float>(dev, std::vector<float>{0, 4}, 2, 1);
  auto out = tensor_of<double>(dev, std::vector<double>{11}, 1, 1);
  const std::vector<nn::ParamRef<cpu::Device, float>> params = {{"a", a.view(), a.view()}, {"b", b.view(), b.view()}};
  add_squared_norm(dev, params, out.view());
  CHECK(to_host(dev, out.view())[0] == 36);
}

}  // namespace clip_test
