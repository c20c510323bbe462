// Steps in units, shared by ranks: how many ranks there are changes no bit.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "lora/core/profile.hpp"
#include "lora/core/random.hpp"
#include "lora/instantiate.hpp"
#include "lora/io/files/read_file.hpp"
#include "lora/run/state.hpp"
#include "lora/train/evaluate.hpp"
#include "lora/train/step.hpp"
#include "support/effort.hpp"
#include "support/instantiate.hpp"
#include "support/random_model.hpp"
#include "support/spans.hpp"
#include "support/temp_folder.hpp"
#include "support/thread_ranks.hpp"

namespace units_test {

namespace {

using namespace lora;
using namespace lora::test;
using D = cpu::Device;

Index all_steps() { return effort<Index>(12, 6, "units: steps 7 to 12"); }

/// The micro-batches of a unit, two at most or one: ragged, some empty, unit 1 without labels in every third step.
std::vector<data::Batch> unit_of(Index step, Index unit, bool single = false) {
  Random random(mix_key(7, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(unit)));
  std::vector<data::Batch> batches((step + unit) % 5 == 4 ? 0 : 1 + static_cast<std::size_t>(single ? 0 : unit % 2));
  const bool labeled = unit != 1 || step % 3 != 0;
  Index place = 4 * unit;
  for (auto& batch : batches)
    for (Index sequences = 1 + static_cast<Index>(random.below(2)); sequences > 0; --sequences) {
      data::Example example;
      for (Index length = 2 + static_cast<Index>(random.below(9)); length > 0; --length) {
        example.tokens.push_back(static_cast<std::int32_t>(random.below(61)));
        example.labels.push_back(labeled && random.below(3) > 0 ? example.tokens.back() : ignore_index);
      }
      batch.append(example, place++);
    }
  return batches;
}

struct Outcome {
  std::vector<double> losses{}, norms{};
  std::string trained{};  ///< an adapter's file, or the numbers of the whole model
  Profile profile{Profile::Limits{.skipped_steps = 0}};
};

enum class What { adapter, model };

/// Some of the steps, from an adapter and an optimizer that were saved before the first and to what is saved after the
/// last, where these folders are not empty.
struct Part {
  Index first = 0, last = all_steps();
  io::Path resumed{}, saved{};
  bool single = false;   ///< units of one micro-batch
  bool on_host = false;  ///< layers that are shared out lie there
  bool skips = false;    ///< some of the gradients are not applied
  bool recomputes = false;
  bool steps_on_host = false;
  std::string_view chosen = "";  ///< of a model trains what has this in its name
  bool profiled = false;
};

template <class T, class D = cpu::Device>
std::vector<Outcome> train(const TempFolder& folder, What what, Index units, int ranks, Index zero_stage,
                           const Part& part = {}) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  run_ranks<D>(ranks, [&](auto& self) {
    Outcome& outcome = outcomes[static_cast<std::size_t>(self.rank())];
    D dev(1);
    const auto source = model::Source::open(folder / "model");
    model::WeightPlaces places;
    places.shares_layers = !D::reads_host_memory && zero_stage > 2 && ranks > 1;
    places.streams_layers = places.shares_layers && part.on_host;
    places.threads = 1;
    model::Decoder<D, T> decoder(dev, source, places, &self);
    CHECK(decoder.gathers_layers() == places.shares_layers);
    const bool shares_values = zero_stage > 2 && ranks > 1 && what == What::model;
    model::AdapterConfig config;
    config.rank = 3;
    config.dropout = 0.2;
    if (shares_values)
      decoder.params().share_values(self);
    else if (zero_stage > 1)
      decoder.params().share_by_layer(self.rank(), self.size());
    if (what == What::adapter) {
      decoder.attach(dev, config);
      model::init_adapter(dev, decoder, 7);
    } else {
      decoder.train_own(dev,
                        [&](const model::TensorInfo& info) { return info.name.find(part.chosen) != info.name.npos; });
    }
    CHECK(decoder.gathers_values() == shares_values);
    if (part.recomputes) decoder.recompute(source.config().num_hidden_layers);
    train::Stepper<D, T> stepper(dev, decoder, {.weight_decay = 0.01}, 1.0, 42, self,
                                 {.units = units, .zero_stage = zero_stage},
                                 {.on_host = part.steps_on_host, .threads = 1});
    if (!part.resumed.empty()) {
      model::load_adapter(dev, decoder, model::open_adapter(part.resumed));
      stepper.with_optimizer(
          dev, [&](auto& at, auto& optimizer) { run::load_optimizer(at, optimizer, part.first, part.resumed); });
    }
    dev.set_profile(part.profiled ? &outcome.profile : nullptr);
    for (Index step = part.first; step < part.last; ++step) {
      const ProfileScope whole(dev, Profile::Kind::step, "step");
      std::vector<std::vector<data::Batch>> own;
      for (Index i = 0; i < stepper.own_units().count(); ++i)
        own.push_back(unit_of(step, stepper.own_units()[i], part.single));
      const auto result = stepper.accumulate(dev, step, std::span<const std::vector<data::Batch>>(own));
      outcome.losses.push_back(result.loss);
      outcome.norms.push_back(result.grad_norm);
      if (!part.skips || step % 3 != 1) stepper.update(dev, result, 1e-2);
    }
    dev.set_profile(nullptr);
    if (!part.saved.empty()) {
      if (self.rank() == 0) {
        std::filesystem::create_directories(part.saved);
        if (what == What::adapter) model::save_adapter(dev, decoder, part.saved);
      }
      stepper.with_optimizer(dev, [&](auto& at, auto& optimizer) {
        run::save_optimizer(at, optimizer, self, self.rank() == 0 ? part.saved : folder / "nowhere");
      });
    }
    if (what == What::model) {
      for (const auto& entry : decoder.params().entries()) {
        const Arena::Scope scope(dev.arena());
        const auto values = to_host(dev, decoder.params().whole(dev, entry));
        outcome.trained.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
      }
      return;
    }
    const auto place = folder / concat("adapter ", self.rank());
    std::filesystem::create_directories(place);
    model::save_adapter(dev, decoder, place);
    outcome.trained = io::read_file(place / "adapter_model.safetensors");
  });
  return outcomes;
}

template <class T>
void check_units(What what = What::adapter, bool tied = true) {
  RandomModel shape;
  shape.tied = what == What::model && tied;
  if (!tied) shape.layers = 4;
  shape.hidden = 32;
  shape.ffn = 48;
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", shape);
  for (const Index units : {4, 7, 8}) {
    if (units != 7 && !effort(true, false, "units: four of them, and eight")) continue;
    CAPTURE(units);
    const Outcome alone = train<T>(folder, what, units, 1, 0).front();
    const Outcome single = train<T>(folder, what, units, 1, 0, {.single = true}).front();
    CHECK(alone.losses.size() == static_cast<std::size_t>(all_steps()));
    for (const double loss : alone.losses) CHECK(loss > 1);
    for (const int ranks : {2, 3, 4, 8}) {
      if (ranks > units || (ranks != 3 && !effort(true, false, "units: shared by two and by four ranks"))) continue;
      CAPTURE(ranks);
      for (const Index zero_stage : {0, 1, 2, 3}) {
        if (zero_stage == 3 && what == What::adapter) continue;  // as 2
        CAPTURE(zero_stage);
        const bool by_layer = zero_stage > 1;
        const Outcome& expected = by_layer ? single : alone;
        for (const auto& outcome : train<T>(folder, what, units, ranks, zero_stage, {.single = by_layer})) {
          CHECK(outcome.losses == expected.losses);
          CHECK(outcome.norms == expected.norms);
          CHECK((outcome.trained == expected.trained));
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("units: any number of ranks trains the same bits, with state and gradients whole or shared out") {
  SUBCASE("f32") { check_units<float>(); }
  if (effort(true, false, "units: adapters in bf16")) SUBCASE("bf16") {
      check_units<bf16>();
    }
  SUBCASE("the whole model") { check_units<bf16>(What::model); }
  SUBCASE("the whole model with a head of its own") { check_units<float>(What::model, false); }
}

TEST_CASE("units: ranks that share out a device's layers train the same bits, with a unit, an empty one or none") {
  RandomModel shape;
  shape.layers = 4;
  shape.hidden = 32;
  shape.ffn = 48;
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", shape);
  const auto alone =
      train<bf16, proof::Device>(folder, What::adapter, 4, 1, 0, {.single = true, .skips = true}).front();
  for (const int ranks : {2, 3})
    for (const bool on_host : {false, true}) {
      if (on_host == (ranks == 2) &&
          !effort(true, false, "units: layers on the host by two ranks, on devices by three"))
        continue;
      CAPTURE(ranks);
      CAPTURE(on_host);
      const Part part{.single = true, .on_host = on_host, .skips = true};
      for (const auto& outcome : train<bf16, proof::Device>(folder, What::adapter, 4, ranks, 3, part)) {
        CHECK(outcome.losses == alone.losses);
        CHECK(outcome.norms == alone.norms);
        CHECK((outcome.trained == alone.trained));
      }
    }
}

TEST_CASE("units: ranks that share out what trains of a device train the same bits, whatever is frozen or recomputed") {
  RandomModel shape;
  shape.layers = 4;
  shape.hidden = 32;
  shape.ffn = 48;
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", shape);
  for (const std::string_view chosen : {"", "q_proj", "layers.2.", "norm", "lm_head", "embed"})
    for (const int ranks : {2, 3}) {
      if (ranks == 2 && !chosen.empty() && !effort(true, false, "units: some of a device's weights by two ranks"))
        continue;
      CAPTURE(chosen);
      CAPTURE(ranks);
      Part part{.last = 4, .single = true, .skips = true};
      part.steps_on_host = ranks == 2;
      part.chosen = chosen;
      const auto alone = train<bf16, proof::Device>(folder, What::model, 4, 1, 0, part).front();
      part.recomputes = ranks == 3;
      for (const auto& outcome : train<bf16, proof::Device>(folder, What::model, 4, ranks, 3, part)) {
        CHECK(outcome.losses == alone.losses);
        CHECK(outcome.norms == alone.norms);
        CHECK((outcome.trained == alone.trained));
      }
    }
}

TEST_CASE("units: in a profile each span is what its name says, whatever is shared out") {
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", RandomModel{.hidden = 32, .ffn = 48});
  const std::set<std::string> phases{"forward", "head", "backward", "update"};
  for (const int ranks : {1, 2})
    for (const Index zero_stage : {0, 1, 2, 3}) {
      if (ranks == 1 && zero_stage > 0) continue;
      CAPTURE(ranks);
      CAPTURE(zero_stage);
      const Part part{.last = 2, .single = true, .profiled = true};
      for (const auto& outcome : train<bf16, proof::Device>(folder, What::adapter, 4, ranks, zero_stage, part))
        CHECK(checked_phases(outcome.profile) == phases);
      for (const auto& outcome : train<bf16>(folder, What::model, 4, ranks, zero_stage, part))
        CHECK(checked_phases(outcome.profile) == phases);
    }
}

TEST_CASE("units: ranks that share out layers evaluate together, and stop together") {
  RandomModel shape;
  shape.layers = 3;
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", shape);
  const auto source = model::Source::open(folder / "model");
  const auto example_of = [](Index i) {
    data::Example example;
    for (Index at = 0; at < 5 + i; ++at) {
      example.tokens.push_back(static_cast<std::int32_t>((7 * i + at) % 60));
      example.labels.push_back(example.tokens.back());
    }
    return example;
  };
  const auto evaluate_by = [&](int ranks, Index records, int stops_after) {
    std::vector<model::Evaluation> all(static_cast<std::size_t>(ranks));
    run_ranks<proof::Device>(ranks, [&](auto& self) {
      proof::Device dev(1);
      model::WeightPlaces places;
      places.shares_layers = ranks > 1;
      places.threads = 1;
      model::Decoder<proof::Device, float> decoder(dev, source, places, &self);
      std::atomic<int> stop = 0;
      int seen = 0;
      train::EvaluationOptions options{.batch = 2, .ranks = &self};
      options.stop = &stop;
      options.see = [&](const model::Evaluation&) {  // one rank is told, in the middle of a round
        if (self.rank() == 0 && ++seen == stops_after) stop = 15;
      };
      // Each by itself, which all do at once: a callback's evaluation.
      const auto own = train::evaluate(dev, decoder, records, example_of, {.batch = 2});
      if (ranks > 1)
        CHECK_THROWS_WITH_AS(
            train::evaluate(dev, decoder, records, example_of, {.stop = &stop}),
            "[evaluate] ranks that gather layers from each other stop together: give them with the stop flag", Error);
      auto& shared = all[static_cast<std::size_t>(self.rank())];
      shared = train::evaluate(dev, decoder, records, example_of, options);
      if (!shared.stopped) CHECK(own.loss_sum == shared.loss_sum);
    });
    return all;
  };
  for (const Index records : {1, 7, 8, 12}) {
    CAPTURE(records);
    const model::Evaluation alone = evaluate_by(1, records, 0).front();
    for (const int ranks : {2, 3})
      for (const model::Evaluation& one : evaluate_by(ranks, records, 0)) {
        CHECK(one.loss_sum == alone.loss_sum);
        CHECK(one.labeled == alone.labeled);
        CHECK(one.computed_tokens == alone.computed_tokens);
        CHECK_FALSE(one.stopped);
      }
  }
  for (const int after : {1, 2, 3})
    for (const model::Evaluation& one : evaluate_by(3, 14, after)) CHECK(one.stopped);
}

TEST_CASE("units: what some ranks have saved, any other number of ranks goes on with, to the same bits") {
  RandomModel shape;
  shape.hidden = 32;
  shape.ffn = 1400;  // tensors of several blocks, so that ranks share some of them
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", shape);
  const Index units = 4, steps = all_steps(), half = steps / 2 - 1;
  const auto part_of = [](Index first, Index last, const io::Path& resumed, const io::Path& saved) {
    return Part{.first = first, .last = last, .resumed = resumed, .saved = saved, .single = true};
  };
  const auto whole = train<float>(folder, What::adapter, units, 1, 0, part_of(0, steps, {}, folder / "whole")).front();
  const io::Path alone = folder / "alone";
  train<float>(folder, What::adapter, units, 1, 0, part_of(0, half, {}, alone));
  for (const int ranks : {2, 3, 4}) {
    if (ranks == 4 && !effort(true, false, "units: what four ranks have saved")) continue;
    CAPTURE(ranks);
    const io::Path half_way = folder / concat("half ", ranks);
    train<float>(folder, What::adapter, units, ranks, 1 + ranks % 2, part_of(0, half, {}, half_way));
    const auto optimizer_of = [](const io::Path& place) { return io::read_file(place / "optimizer.safetensors"); };
    CHECK((optimizer_of(half_way) == optimizer_of(alone)));
    CHECK_FALSE(std::filesystem::exists(folder / "nowhere"));
    for (const int others : {1, 2, 3, 4}) {
      if (others % 2 != ranks % 2 &&
          !effort(true, false, "units: what two ranks have saved, for an odd number of them, and the other way round"))
        continue;
      CAPTURE(others);
      const io::Path end = folder / concat("end ", ranks, " ", others);
      const Index zero_stage = others > 1 ? 1 + (ranks + others) % 2 : 0;
      const auto outcomes =
          train<float>(folder, What::adapter, units, others, zero_stage, part_of(half, steps, half_way, end));
      for (const auto& outcome : outcomes) {
        CHECK(std::equal(outcome.losses.begin(), outcome.losses.end(), whole.losses.begin() + half));
        CHECK((outcome.trained == whole.trained));
      }
      CHECK((optimizer_of(end) == optimizer_of(folder / "whole")));
    }
  }
}

TEST_CASE("units: ranks save a state of several groups as one rank does") {
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", RandomModel{});
  const auto state_by = [&](int ranks) {
    const io::Path place = folder / concat("by ", ranks);
    train<float>(folder, What::model, 4, ranks, ranks - 1, {.last = 2, .saved = place, .single = true});
    return io::read_file(place / "optimizer.safetensors");
  };
  const std::string alone = state_by(1);
  for (const int ranks : {2, 3}) CHECK((state_by(ranks) == alone));
}

TEST_CASE("units: the gradient is that of the whole step, in another order of its sums") {
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", RandomModel{});
  const auto source = model::Source::open(folder / "model");
  D dev(1);
  const auto gradient_of = [&](Index units) {
    model::Decoder<D, double> decoder(dev, source);
    decoder.attach(dev, {});
    model::init_adapter(dev, decoder, 7);
    decoder.params().for_each([&](const auto& param) {  // B away from zero, else A has no gradient
      if (param.transposed) kernel::fill(dev, param.value, 0.01);
    });
    comm::Single<D> alone;
    train::Stepper<D, double> stepper(dev, decoder, {}, 0, 42, alone, {.units = units});
    std::vector<std::vector<data::Batch>> own(static_cast<std::size_t>(units));
    for (Index unit = 0; unit < 8; ++unit)
      for (auto& batch : unit_of(1, unit)) own[static_cast<std::size_t>(unit * units / 8)].push_back(std::move(batch));
    const auto result = stepper.accumulate(dev, 0, std::span<const std::vector<data::Batch>>(own));
    std::vector<double> values{result.loss, result.grad_norm};
    decoder.params().for_each([&](const auto& param) {
      for (const double value : to_host(dev, param.grad)) values.push_back(value);
    });
    return values;
  };
  const auto one = gradient_of(1);
  for (const Index units : {2, 3, 5, 8}) {
    CAPTURE(units);
    const auto many = gradient_of(units);
    REQUIRE(many.size() == one.size());
    double worst = 0;
    for (std::size_t i = 0; i < one.size(); ++i) worst = std::max(worst, std::fabs(many[i] - one[i]));
    CHECK(worst < 1e-13);  // sums of some hundred terms below 1, a rounding each
  }
}

TEST_CASE("units: what trains may change between steps, with gradients that leave by layer too") {
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", {.hidden = 32, .ffn = 48});
  const auto has = [](std::string_view name, std::string_view part) { return name.find(part) != name.npos; };
  using Trains = std::function<bool(std::string_view)>;
  std::vector<Trains> choices;
  // As many layers each time, with more numbers each time, and then all of it.
  for (const std::string_view part : {"norm", "k_proj", "mlp.", "_proj", ""})
    choices.push_back([=](std::string_view name) { return has(name, part); });
  // As many numbers, of two layers, and then of one.
  for (const std::string_view norms : {"layers.1.", "layers.0."})
    choices.push_back([=](std::string_view name) {
      return (has(name, "layers.0.") && has(name, "_proj.weight")) || (has(name, norms) && has(name, "norm"));
    });
  const auto trained = [&]<class Device>(std::type_identity<Device>, int ranks) {
    Outcome outcome;
    run_ranks<Device>(ranks, [&](auto& self) {
      Device dev(1);
      model::Decoder<Device, float> decoder(dev, model::Source::open(folder / "model"));
      if (ranks > 1) decoder.params().share_by_layer(self.rank(), self.size());
      decoder.train_own(dev, [](const model::TensorInfo&) { return true; });
      train::Stepper<Device, float> stepper(dev, decoder, {}, 1.0, 42, self,
                                            {.units = 4, .zero_stage = ranks > 1 ? 2 : 0});
      std::vector<double> norms;
      for (Index step = 0; const Trains& trains : choices) {
        stepper.train(dev, trains);
        std::vector<std::vector<data::Batch>> own;
        for (Index i = 0; i < stepper.own_units().count(); ++i)
          own.push_back(unit_of(step, stepper.own_units()[i], true));
        const auto result = stepper.accumulate(dev, step++, std::span<const std::vector<data::Batch>>(own));
        norms.push_back(result.grad_norm);
        stepper.update(dev, result, 1e-2);
      }
      if (self.rank() > 0) return;
      outcome.norms = norms;
      decoder.params().for_each([&](const auto& param) {
        for (const float value : to_host(dev, param.value)) outcome.losses.push_back(value);
      });
    });
    return outcome;
  };
  const Outcome alone = trained(std::type_identity<D>(), 1);
  for (const double norm : alone.norms) CHECK(norm > 0);
  for (const int ranks : {2, 3})
    for (const Outcome& outcome :
         {trained(std::type_identity<D>(), ranks), trained(std::type_identity<proof::Device>(), ranks)}) {
      CAPTURE(ranks);
      CHECK(outcome.norms == alone.norms);
      CHECK((outcome.losses == alone.losses));
    }
}

TEST_CASE("units: where none are said and gradients leave by layer, as many as the stage that needs most has") {
  Config config;
  config.ranks = 2;
  config.per_device_train_batch_size = 4;
  config.gradient_accumulation_steps = 1;
  config.stages.resize(3);
  config.stages[0].gradient_accumulation_steps = 2;
  config.stages[1].gradient_accumulation_steps = 5;
  config.stages[2].gradient_accumulation_steps = 3;
  for (const Index zero_stage : {0, 1}) {
    config.zero_stage = zero_stage;
    CHECK(train::usual_units(config) == 2);
  }
  for (const Index zero_stage : {2, 3}) {
    config.zero_stage = zero_stage;
    CHECK(train::usual_units(config) == 2 * 5);
  }
  config.max_tokens_per_micro_batch = 512;  // then a micro-batch may have a single sequence
  CHECK(train::usual_units(config) == 2 * 5 * 4);
  config.ranks = 1;
  CHECK(train::usual_units(config) == 1);
}

TEST_CASE("units: every rank needs one, and a step brings those of its rank") {
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", RandomModel{});
  const auto source = model::Source::open(folder / "model");
  D dev(1);
  model::Decoder<D, float> decoder(dev, source);
  decoder.attach(dev, {});
  comm::Single<D> alone;
  using Stepper = train::Stepper<D, float>;
  CHECK_THROWS_WITH_AS(Stepper(dev, decoder, {}, 0, 42, alone, {.units = 0}),
                       "a step of 0 units can't be shared by 1 ranks; every rank needs one", ConfigError);
  Stepper stepper(dev, decoder, {}, 0, 42, alone, {.units = 4});
  const std::vector<std::vector<data::Batch>> own(3);
  CHECK_THROWS_WITH_AS(stepper.accumulate(dev, 0, std::span<const std::vector<data::Batch>>(own)),
                       "[step] micro-batches of 3 units; this rank forms 4", ShapeError);
}

}  // namespace units_test
