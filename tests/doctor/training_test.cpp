#include "lora/doctor/training.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lora/cpu/kernels.hpp"
#include "lora/instantiate.hpp"
#include "support/message_of.hpp"

namespace doctor_training_test {

using namespace lora;
using namespace lora::doctor;
using D = cpu::Device;
namespace parts = doctor::detail;

namespace {

/// Smaller than the one of a report.
TinyTraining smaller() {
  TinyTraining tiny;
  tiny.hidden = 32;
  tiny.ffn = 32;
  tiny.layers = 1;
  tiny.head_width = 16;
  tiny.steps = 3;
  tiny.sequences = {5, 4};
  return tiny;
}

template <class T>
TrainingRow trained(const TinyTraining& tiny) {
  D dev(1);
  TrainingRow row;
  train_tiny<T>(dev, row, tiny);
  return row;
}

}  // namespace

TEST_CASE("training: bounds are those of the type's roundings") {
  const auto check = [](Precision precision, double loss, double norm) {
    CHECK(training_bounds(precision).loss == loss);
    CHECK(training_bounds(precision).norm == norm);
  };
  check(Precision::float32, 0.001, 0.01);
  check(Precision::float16, 0.01, 0.1);
  check(Precision::bfloat16, 0.03, 0.3);
}

TEST_CASE("training: the model of a report is small, and a Qwen3") {
  TinyTraining tiny;
  CHECK(std::vector<Index>{tiny.vocabulary, tiny.hidden, tiny.ffn, tiny.layers, tiny.heads, tiny.kv_heads,
                           tiny.head_width, tiny.rank,
                           tiny.steps} == std::vector<Index>{256, 64, 128, 3, 2, 1, 32, 8, 20});
  CHECK(tiny.learning_rate == 1e-2);
  CHECK(tiny.initializer_range == 0.1);
  CHECK(tiny.sequences == std::vector<Index>{17, 9, 22});
  CHECK_FALSE(tiny.streams_layers);
  CHECK_FALSE(tiny.state_on_host);
  const auto check = [](const TinyTraining& asked) {
    const model::Source source = parts::tiny_source(asked);
    const model::Config& config = source.config();
    CHECK(config.model_type == "qwen3");
    CHECK(config.vocab_size == asked.vocabulary);
    CHECK(config.hidden_size == asked.hidden);
    CHECK(config.intermediate_size == asked.ffn);
    CHECK(config.num_hidden_layers == asked.layers);
    CHECK(config.num_attention_heads == asked.heads);
    CHECK(config.num_key_value_heads == asked.kv_heads);
    CHECK(config.head_dim == asked.head_width);
    CHECK(config.tie_word_embeddings);
    CHECK(config.rms_norm_eps == 1e-6);
    CHECK(config.max_position_embeddings == 4096);
  };
  check(tiny);
  check({.vocabulary = 40, .hidden = 48, .ffn = 56, .layers = 2, .heads = 6, .kv_heads = 3, .head_width = 8});
}

TEST_CASE("training: each token of a report's sequences follows from the one before, and the first three are given") {
  const TinyTraining tiny = smaller();
  for (const Index step : {0, 1, 19})
    for (const Index micro_batch : {0, 1}) {
      const data::Batch batch = parts::tiny_batch(tiny, step, micro_batch);
      std::vector<std::int32_t> tokens, labels;
      for (Index i = 0; i < 2; ++i) {
        const Index length = i == 0 ? 5 : 4;
        std::vector<std::int32_t> own;
        for (Index token = (29 * step + 53 * (2 * micro_batch + i)) % 256; std::ssize(own) < length;
             token = (5 * token + 17) % 256)
          own.push_back(static_cast<std::int32_t>(token));
        tokens.insert(tokens.end(), own.begin(), own.end());
        // A batch's labels are of the token that comes next.
        for (Index j = 1; j <= length; ++j)
          labels.push_back(j < 3 || j == length ? ignore_index : own[static_cast<std::size_t>(j)]);
      }
      CHECK(batch.tokens == tokens);
      CHECK(batch.labels == labels);
      CHECK(batch.positions == std::vector<std::int32_t>{0, 1, 2, 3, 4, 0, 1, 2, 3});
    }
}

TEST_CASE("training: the folder of an adapter goes with who made it") {
  io::Path path;
  {
    const parts::PassingFolder folder;
    path = folder.path();
    CHECK(std::filesystem::is_directory(path));
    io::write_file(path / "adapter", std::string_view("x"));
    const parts::PassingFolder other;
    CHECK(other.path() != path);
  }
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("training: it tells a loss and a norm for each step, how fast it was and what it took") {
  const TinyTraining tiny = smaller();
  const TrainingRow row = trained<float>(tiny), again = trained<float>(tiny), half = trained<f16>(tiny);
  for (const TrainingRow& one : {row, half}) {
    CHECK(one.state == State::ok);
    CHECK(one.words.empty());
    REQUIRE(one.losses.size() == 3);
    REQUIRE(one.norms.size() == 3);
    // A model that knows nothing spreads its guesses over 256 tokens.
    CHECK(one.losses[0] == doctest::Approx(std::log(256)).epsilon(0.2));
    for (const double norm : one.norms) CHECK(norm > 0);
    CHECK(one.tokens_per_second > 0);
    CHECK(one.peak_bytes > 0);
    CHECK(one.overflows == 0);
  }
  CHECK(row.losses == again.losses);
  CHECK(row.norms == again.norms);
  CHECK(row.losses != half.losses);
  CHECK(row.losses[0] != row.losses[1]);
  TrainingRow compared = half;
  compare(compared, row, training_bounds(Precision::float16));
  CHECK(compared.state == State::ok);
}

TEST_CASE("training: its steps are those of its seeds, its rates and its adapter") {
  const auto check = [](const TrainingRow& row, const std::vector<double>& losses, const std::vector<double>& norms) {
    REQUIRE(row.losses.size() == losses.size());
    REQUIRE(row.norms.size() == norms.size());
    for (std::size_t i = 0; i < losses.size(); ++i) {
      CHECK(row.losses[i] == doctest::Approx(losses[i]).epsilon(1e-4));
      CHECK(row.norms[i] == doctest::Approx(norms[i]).epsilon(1e-4));
    }
  };
  TinyTraining tiny = smaller();
  check(trained<float>(tiny), {5.60748, 5.4584, 5.70626}, {2.49681, 1.97864, 2.9606});
  tiny.learning_rate = 0.1;
  tiny.rank = 2;
  check(trained<float>(tiny), {5.60748, 5.65872, 5.64629}, {4.72189, 5.41849, 9.69209});
}

TEST_CASE("training: steps that overflow in float16 are made again with half the scale, and are counted") {
  TinyTraining tiny = smaller();
  tiny.initializer_range = 4;
  const TrainingRow half = trained<f16>(tiny), single = trained<float>(tiny);
  CHECK(half.overflows == 3);
  CHECK(half.losses.size() == 3);
  CHECK(half.losses[0] == doctest::Approx(single.losses[0]).epsilon(0.05));
  CHECK(single.overflows == 0);
}

TEST_CASE("training: a step without a finite loss ends it, and says which") {
  TinyTraining tiny = smaller();
  tiny.learning_rate = 1e30;
  D dev(1);
  TrainingRow row;
  CHECK(test::message_of<Error>([&] {
          train_tiny<float>(dev, row, tiny);
        }).starts_with("step 2 has the loss nan and the norm "));
  CHECK(row.losses.size() == 2);
  CHECK(std::isfinite(row.losses[0]));
}

TEST_CASE("training: what is told of a comparison are the largest relative differences, and the bounds") {
  const TrainingRow reference{.type = "float32", .losses = {4, 2}, .norms = {1, 8}};
  const auto compared = [&](TrainingRow row) {
    doctor::compare(row, reference, {0.25, 0.5});
    CHECK(row.loss_bound == 0.25);
    CHECK(row.norm_bound == 0.5);
    return row;
  };
  const TrainingRow near = compared({.type = "x", .losses = {3.5, 2.5}, .norms = {0.5, 9}});
  CHECK(near.loss_difference == 0.25);
  CHECK(near.norm_difference == 0.5);
  CHECK(near.state == State::ok);
  CHECK(near.words.empty());
  const TrainingRow far = compared({.type = "x", .losses = {4, 2.75}, .norms = {1, 8}});
  CHECK(far.loss_difference == 0.375);
  CHECK(far.norm_difference == 0);
  CHECK(far.words == "the steps go another way than on the processors");
  const TrainingRow norms = compared({.type = "x", .losses = {4, 2}, .norms = {2, 8}, .words = "what was before"});
  CHECK(norms.norm_difference == 1);
  CHECK(norms.state == State::too_far);
  CHECK(norms.words == "what was before");
  for (const TrainingRow& none : {compared({.type = "x", .losses = {4}, .norms = {1}}),
                                  compared({.type = "x", .losses = {NAN, 2}, .norms = {1, 8}})}) {
    CHECK(none.loss_difference == INFINITY);
    CHECK(none.state == State::too_far);
  }
  // An adapter that is another when it is loaded stays so, however near the steps are.
  CHECK(compared({.type = "x", .state = State::too_far, .losses = {4, 2}, .norms = {1, 8}}).state == State::too_far);
}

TEST_CASE("training: bits are compared with those of a training that was one") {
  TrainingRow row{.type = "a", .losses = {5, 4}, .norms = {1, 2}};
  const TrainingRow failed{.type = "b", .state = State::failed, .losses = {6}, .norms = {1}},
      longer{.type = "c", .losses = {5, 4, 3}, .norms = {1, 2, 3}};
  expect_same_bits(row, failed);
  CHECK(row.state == State::ok);
  CHECK(row.words.empty());
  expect_same_bits(row, longer);
  CHECK(row.state == State::too_far);
  CHECK(row.words == "step 3 has other bits than in c");
}

TEST_CASE("training: one that fails is a row with its words, under the name of its type and of what is offloaded") {
  const auto make = []() -> D { fail<DeviceError>("gone"); };
  HeldDevice<decltype(make)> device(make);
  Report report;
  std::vector<std::string> begun;
  const auto begins = [&](const std::string& what) { begun.push_back(what); };
  check_training<float>(device, report, begins);
  check_training<float>(device, report, begins, "params");
  check_training<float>(device, report, begins, "all");
  check_training<float>(device, report, begins);
  check_offload(device, report, begins);  // processors have nothing to leave to a host
  const std::vector<std::string> types = {"float32", "float32, offload params", "float32, offload all", "float32"};
  REQUIRE(report.training.size() == 4);
  REQUIRE(begun.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(report.training[i].type == types[i]);
    CHECK(begun[i] == "training in " + types[i]);
    CHECK(report.training[i].state == State::failed);
    CHECK(report.training[i].words == (i < 3 ? "gone" : "the device could not be opened 3 times in a row"));
    CHECK(report.training[i].losses.empty());
  }
}

}  // namespace doctor_training_test
