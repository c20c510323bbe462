#include "lora/optim/loss_scale.hpp"

#include <doctest/doctest.h>

#include <filesystem>

#include "lora/io/formats/json.hpp"

namespace loss_scale_test {

using namespace lora;

TEST_CASE("loss scale: it changes as PyTorch's GradScaler does") {
  const io::Json fixture = io::read_json(std::filesystem::path(LORA_FIXTURES) / "grad_scaler.json");
  optim::LossScale scale;
  const Index interval = fixture.at("growth_interval");
  Index step = 0;
  for (const io::Json& line : fixture.at("steps")) {
    ++step;
    CAPTURE(step);
    scale.add_step(line.at("overflows").get<bool>(), interval);
    CHECK(scale.value == line.at("scale").get<double>());
  }
  CHECK(step == 120);
}

TEST_CASE("loss scale: without overflow it doubles every 2000 steps, up to what a float32 holds") {
  optim::LossScale scale;
  CHECK(scale.value == 65536);
  for (Index step = 1; step <= 4000; ++step) {
    scale.add_step(false);
    CHECK(scale.value == (step < 2000 ? 65536 : step < 4000 ? 131072 : 262144));
  }
  for (Index step = 0; step < 2000 * 200; ++step) scale.add_step(false);
  CHECK(scale.value == optim::LossScale::most);
  while (scale.can_shrink()) scale.add_step(true);
  CHECK(scale.value == 1);
}

TEST_CASE(
    "loss scale: an overflow counts from the beginning again, and only below the least there is nothing to halve") {
  optim::LossScale scale;
  CHECK(scale.good_steps == 0);
  for (int step = 0; step < 3; ++step) scale.add_step(false, 4);
  CHECK(scale.good_steps == 3);
  CHECK(scale == optim::LossScale{65536, 3});
  scale.add_step(true, 4);
  CHECK(scale == optim::LossScale{32768, 0});
  for (int step = 0; step < 4; ++step) scale.add_step(false, 4);
  CHECK(scale == optim::LossScale{65536, 0});
  scale.value = optim::LossScale::most / 2;
  scale.add_step(false, 1);
  CHECK(scale == optim::LossScale{optim::LossScale::most, 0});
  scale.add_step(false, 1);
  CHECK(scale == optim::LossScale{optim::LossScale::most, 0});
  scale.value = 2;
  CHECK(scale.can_shrink());
  scale.value = 1;
  CHECK_FALSE(scale.can_shrink());
  CHECK(optim::LossScale::most == 0x1p126);
  CHECK(optim::LossScale::growth_interval == 2000);
}

}  // namespace loss_scale_test
