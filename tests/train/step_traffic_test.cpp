// What ranks are forecast to send in a step is what they send.

#include "lora/train/step_traffic.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "lora/forecast/planned_model.hpp"
#include "lora/forecast/run_forecast.hpp"
#include "lora/train/trainer.hpp"
#include "support/effort.hpp"
#include "support/instantiate.hpp"
#include "support/quiet.hpp"
#include "support/small_training.hpp"
#include "support/thread_ranks.hpp"
#include "support/workshop.hpp"

namespace step_traffic_test {

using namespace lora;
using namespace lora::test;

namespace {

struct Bytes {
  double sent = 0, received = 0;
  friend bool operator==(const Bytes&, const Bytes&) = default;
};
Bytes operator-(const Bytes& a, const Bytes& b) { return {a.sent - b.sent, a.received - b.received}; }
Bytes counted(const comm::Ranks& ranks) {
  const comm::Traffic traffic = ranks.traffic();
  return {traffic.sent_bytes, traffic.received_bytes};
}
Bytes forecast(const train::TrafficBasis& basis, int rank) {
  Bytes all;
  for (const train::Traffic& one : train::step_traffic(basis, rank)) {
    CHECK(one.calls > 0);
    all.sent += one.sent;
    all.received += one.received;
  }
  return all;
}

/// What each rank has sent and received behind each step of a run.
template <AnyDevice D>
std::vector<std::vector<Bytes>> traffic_of(const Config& config, int ranks) {
  std::vector<std::vector<Bytes>> after(static_cast<std::size_t>(ranks));
  run_ranks<D>(ranks, [&](auto& self) {
    RunOptions options;
    options.log = [](log::Level, std::string_view) {};
    options.on_step = [&](const StepMetrics&) {
      after[static_cast<std::size_t>(self.rank())].push_back(counted(self));
    };
    D dev(1);
    train::TrainingRun<D, float>(dev, config, inputs::open_source(config), options, &self).run();
  });
  return after;
}
template <AnyDevice D>
train::TrafficBasis basis_of(const Config& config, int ranks) {
  return forecast::traffic_basis<D, float>(inputs::blueprint_of(config, inputs::open_source(config)), config, ranks);
}

}  // namespace

TEST_CASE("step traffic: no rank sends a twentieth more than what its sums and gathers need at least") {
  // Of P bytes that train, on N ranks of a unit each: who has not all of them, and has to have the sum over ranks, or
  // all of what each rank has a part of, sends (N - 1) / N P for it at the least. zero_stage 0 adds gradients up by
  // parts and gathers the sums, 1 and 2 gather values in their place: 2 (N - 1) / N P. Of a whole model stage 3 gathers
  // values for forward and again for backward: 3 (N - 1) / N P; what a rank keeps between the two, and the embedding
  // and head, which it gathers once, make it less.
  for (const bool full : {false, true})
    for (const Index zero_stage : {0, 1, 2, 3})
      for (const int ranks : {2, 3, 6, 8, 16}) {
        CAPTURE(full);
        CAPTURE(zero_stage);
        CAPTURE(ranks);
        Config config;
        config.model_preset = "qwen3-0.6b";
        config.zero_stage = zero_stage;
        config.step_units = ranks;
        if (full) config.finetuning_type = "full";
        const auto model = forecast::planned_model(config);
        const auto blueprint = forecast::blueprint_of(config, model.source, model.declared);
        const auto basis = forecast::traffic_basis<cpu::Device, float>(blueprint, config, ranks);
        double trained = 0;
        for (const nn::GroupSize& group : basis.sizes) trained += static_cast<double>(group.trained);
        CHECK(trained > (full ? 500e6 : 4e6));
        const bool gathers_twice = full && zero_stage == 3;
        const double least = (gathers_twice ? 3.0 : 2.0) * (ranks - 1) / ranks * trained * sizeof(float);
        for (int rank = 0; rank < ranks; ++rank) {
          CAPTURE(rank);
          const Bytes bytes = forecast(basis, rank);
          CHECK(bytes.sent <= 1.05 * least);
          CHECK(bytes.received <= 1.05 * least);
          CHECK(bytes.sent >= (gathers_twice ? 0.7 : 0.95) * least);  // more than is possible was not counted
        }
      }
}

TEST_CASE("step traffic: of a run's steps every byte is forecast, whatever ranks share out") {
  const Quiet quiet;
  Workshop shop;
  write_tokens(shop.temp / "more.jsonl", 9, 5);
  for (const bool full : {false, true})
    for (const int ranks : {2, 3})
      for (const Index zero_stage : {0, 1, 2, 3}) {
        CAPTURE(full);
        CAPTURE(ranks);
        CAPTURE(zero_stage);
        if (full != (ranks == 3) &&
            !effort(true, false, "step traffic: a whole model of two ranks, an adapter of three"))
          continue;
        Config config = shop.config("run");
        config.overwrite_output_dir = true;
        config.step_units = 4;
        config.zero_stage = zero_stage;
        config.max_steps = 4;
        config.save_steps = 0;
        config.eval_steps = 4;
        if (full) {
          config.finetuning_type = "full";
          config.lora_rank.reset();
          config.lora_dropout = 0;
        } else {
          config.dataset.push_back((shop.temp / "more.jsonl").native());  // whose records are counted
        }
        const auto check = [&](const auto& after, train::TrafficBasis basis) {
          basis.files = std::ssize(config.dataset) > 1 ? std::ssize(config.dataset) : 0;
          for (int rank = 0; rank < ranks; ++rank) {
            CAPTURE(rank);
            const auto& own = after[static_cast<std::size_t>(rank)];
            REQUIRE(own.size() == 4);
            const Bytes expected = forecast(basis, rank);
            CHECK(expected.sent > 0);
            CHECK(own[1] - own[0] == expected);
            CHECK(own[2] - own[1] == expected);
          }
        };
        check(traffic_of<cpu::Device>(config, ranks), basis_of<cpu::Device>(config, ranks));
        if (!full) continue;
        config.offload = "all";  // weights that train lie on the host
        check(traffic_of<proof::Device>(config, ranks), basis_of<proof::Device>(config, ranks));
      }
  CHECK(train::step_traffic({}, 0).empty());
}

TEST_CASE("step traffic: of each kind the calls and bytes are those of parts, units, layers and pieces") {
  train::TrafficBasis basis;
  basis.ranks = 2;
  basis.units = 3;                                                                  // of which the second rank has two
  basis.sizes = {{.all = 1024, .trained = 0}, {.all = 8192, .trained = 5 * 1024}};  // parts of two blocks and of three
  basis.piece = 4096;
  basis.files = 2;
  const auto text_of = [&](int rank) {
    std::string text;
    for (const train::Traffic& one : train::step_traffic(basis, rank))
      text +=
          concat(one.what, " by ", one.collective, ": ", one.calls, " calls, ", one.sent, " and ", one.received, "\n");
    return text;
  };
  CHECK(text_of(0) ==
        "gradients by all-to-all: 1 calls, 12288 and 16384\n"
        "norm by all-gather: 1 calls, 16 and 24\n"
        "summed gradients by all-gather: 3 calls, 8192 and 12288\n"
        "counts and losses by all-gather: 5 calls, 112 and 120\n");
  CHECK(text_of(1) ==
        "gradients by all-to-all: 1 calls, 16384 and 12288\n"
        "norm by all-gather: 1 calls, 24 and 16\n"
        "summed gradients by all-gather: 3 calls, 12288 and 8192\n"
        "counts and losses by all-gather: 5 calls, 120 and 112\n");
  // Gradients that leave with each unit, in two rounds, and layers that come for each of them.
  basis.zero_stage = 3;
  basis.piece = 0;
  basis.files = 0;
  basis.sum = 4;
  basis.sizes[1].buckets = {{0, 5 * 1024, 0}};
  basis.layers = {1000, 1000, 1000};  // of which a rank has 512 bytes, the other 488
  CHECK(text_of(0) ==
        "layers by all-gather: 4 calls, 2048 and 1952\n"
        "last gradients by all-to-all: 2 calls, 24576 and 8192\n"
        "norm by all-gather: 1 calls, 8 and 12\n"
        "values by all-gather: 1 calls, 8192 and 12288\n"
        "counts and losses by all-gather: 4 calls, 104 and 96\n");
  CHECK(text_of(1) ==
        "layers by all-gather: 4 calls, 1952 and 2048\n"
        "last gradients by all-to-all: 2 calls, 8192 and 24576\n"
        "norm by all-gather: 1 calls, 12 and 8\n"
        "values by all-gather: 1 calls, 12288 and 8192\n"
        "counts and losses by all-gather: 4 calls, 96 and 104\n");
  // What is computed beside them: of gradients not beside those with which backward ends.
  const auto beside = [&](std::vector<nn::Bucket> buckets) {
    basis.sizes[1].buckets = std::move(buckets);
    std::string what;
    for (const train::Traffic& one : train::step_traffic(basis, 0))
      if (one.beside != train::Traffic::Beside::nothing)
        what += concat(one.what, one.beside == train::Traffic::Beside::backward ? " beside backward, " : ", ");
    return what;
  };
  constexpr Index half = 2 * 1024, all = 5 * 1024;
  basis.depth = 3;
  CHECK(beside({{0, all, 0}}) == "layers, ");
  CHECK(beside({{0, half, 1}, {half, all, 2}}) == "layers, gradients beside backward, ");
  CHECK(beside({{0, half, nn::before_layers}, {half, all, 0}}) == "layers, gradients beside backward, ");
  CHECK(beside({{0, all, nn::behind_layers}}) == "layers, ");
  CHECK(beside({{0, half, 2}, {half, all, nn::behind_layers}}) == "layers, gradients beside backward, ");
  using Gathers = std::vector<Index>;
  const auto gathers_of = [](std::size_t layers, int slots, Index first) {
    return train::gathers_of(std::vector<bool>(layers, true), slots, first, 1, 1);
  };
  CHECK(gathers_of(2, 2, 0) == Gathers{0, 0});
  CHECK(gathers_of(3, 2, 0) == Gathers{1, 0, 1});
  CHECK(gathers_of(4, 2, 0) == Gathers{1, 1, 1, 1});
  CHECK(gathers_of(4, 3, 0) == Gathers{1, 0, 0, 1});
  CHECK(gathers_of(5, 3, 1) == Gathers{1, 1, 0, 1, 1});
  // The first pass finds nothing there, and a layer without anything takes no room.
  CHECK(train::gathers_of({true, true, true}, 2, 0, 1, 0) == Gathers{2, 1, 1});
  CHECK(train::gathers_of({true, true, true}, 2, 0, 3, 0) == Gathers{4, 1, 3});
  CHECK(train::gathers_of({true, false, true, true, false}, 2, 0, 2, 0) == Gathers{3, 0, 1, 2, 0});
}

TEST_CASE("step traffic: layers that ranks gather are forecast with all rounds of a step") {
  using D = proof::Device;
  const Subject subject = subject_of("qwen3", 4);
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", subject.model);
  const auto source = model::Source::open(folder / "model");
  constexpr Index units = 5;
  for (const int ranks : {2, 3})
    for (const char* const upper : {"", "model.layers.3.", "model.layers.1."}) {  // what trains; backward ends there
      CAPTURE(ranks);
      CAPTURE(upper);
      if (ranks == 2 && !effort(true, false, "step traffic: two ranks that gather layers")) continue;
      const auto trains = [&](std::string_view name) { return name >= upper; };
      std::vector<Bytes> steps(static_cast<std::size_t>(ranks));
      run_ranks<D>(ranks, [&](auto& self) {
        D dev(1);
        model::WeightPlaces places;
        places.shares_layers = true;
        places.threads = 1;
        model::Decoder<D, bf16> decoder(dev, source, places, &self);
        decoder.params().share_by_layer(self.rank(), ranks);
        model::AdapterConfig adapter;
        adapter.rank = 2;
        decoder.attach(dev, adapter);
        model::init_adapter(dev, decoder, 7);
        train::Stepper<D, bf16> stepper(dev, decoder, {}, 1.0, 42, self, {.units = units, .zero_stage = 3});
        stepper.train(dev, trains);
        Bytes before;
        for (Index step = 0; step < 3; ++step) {
          before = counted(self);
          std::vector<std::vector<data::Batch>> own;
          for (Index i = 0; i < stepper.own_units().count(); ++i)
            own.push_back({batch_of(std::vector<Index>{5, 3}, 2 * stepper.own_units()[i], 9)});
          stepper.update(dev, stepper.accumulate(dev, step, std::span<const std::vector<data::Batch>>(own)), 1e-3);
        }
        steps[static_cast<std::size_t>(self.rank())] = counted(self) - before;
      });
      model::Blueprint blueprint = model::blueprint_of(source);
      blueprint.adapter.emplace();
      blueprint.adapter->rank = 2;
      blueprint.shares_by_layer = true;
      settings::Config config;
      config.step_units = units;
      config.zero_stage = 3;
      const auto basis = forecast::traffic_basis<D, bf16>(blueprint, config, ranks, trains);
      CHECK(basis.layers.size() == 4);
      for (int rank = 0; rank < ranks; ++rank) {
        CAPTURE(rank);
        Bytes expected = forecast(basis, rank);
        const double agreed = 2.0 * 4.0 * sizeof(double) * (ranks - 1);  // by a run's loop, which is not here
        expected = expected - Bytes{agreed, agreed};
        CHECK(steps[static_cast<std::size_t>(rank)] == expected);
      }
    }
}

}  // namespace step_traffic_test
