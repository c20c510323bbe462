#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lora/instantiate.hpp"
#include "lora/run/memory_use.hpp"
#include "lora/train/memory_plan.hpp"
#include "support/effort.hpp"
#include "support/instantiate.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace memory_test {

using namespace lora;
using lora::test::Quiet;

namespace {

using Cpu = cpu::Device;

/// A model of four layers with an adapter on all of them.
struct Model {
  test::TempFolder temp;
  cpu::Device dev{1};
  model::Source source;
  model::Decoder<cpu::Device, float> decoder{dev, source};

  explicit Model(Index ffn = 384) : source(written(temp / "model", ffn)) {
    decoder.attach(dev, {});
    model::init_adapter(dev, decoder, 1);
  }

  /// What is forecast from, without the bytes of its weights.
  train::MemoryBasis basis() {
    model::Blueprint blueprint = model::blueprint_of(source);
    blueprint.adapter.emplace();
    return {std::move(blueprint), nn::machine_of(dev)};
  }
  train::MemoryForecast forecast(Index rows, Index labeled, Index recomputed) {
    return train::forecast_memory<Cpu, float>(basis(), rows, labeled, recomputed);
  }
  train::MemoryForecast forecast_evaluation(Index rows, Index labeled) {
    return train::forecast_evaluation<Cpu, float>(basis(), rows, labeled);
  }
  template <class... Rest>
  train::MemoryPlan plan(const train::LargestBatch& batch, const train::LargestBatch& evaluation, const Rest&... rest) {
    return train::plan_memory<Cpu, float>(basis(), batch, evaluation, rest...);
  }

  static model::Source written(const io::Path& folder, Index ffn) {
    test::RandomModel shape;
    shape.hidden = 128;
    shape.ffn = ffn;
    shape.head_dim = 32;
    shape.layers = 4;
    shape.vocabulary = 2000;
    test::write_random_model(folder, shape);
    return model::Source::open(folder);
  }
};

/// Records of these lengths, of which every second token is labeled.
data::EncodeSummary records_of(std::initializer_list<std::size_t> lengths) {
  data::EncodeSummary summary;
  for (const std::size_t length : lengths) {
    data::Example example;
    example.tokens.assign(length, 1);
    example.labels.assign(length, ignore_index);
    for (std::size_t i = 1; i < length; i += 2) example.labels[i] = 1;
    summary.add(example);
  }
  return summary;
}

}  // namespace

TEST_CASE("memory: the largest micro-batch is of the longest records, as many as it holds and there are") {
  const auto records = records_of({10, 40, 20, 30});
  const auto check = [&](inputs::MicroBatchLimit limit, Index per_step, Index rows) {
    CAPTURE(rows);
    const train::LargestBatch batch = train::largest_batch(records, limit, per_step);
    CHECK(batch.rows == rows);
    CHECK(batch.labeled == (rows + 1) / 2);
  };
  check({2, 0}, 4, 80);    // two sequences
  check({1, 0}, 4, 40);    // one
  check({1, 65}, 4, 65);   // tokens, however many sequences they are
  check({1, 25}, 4, 40);   // never less than a sequence
  check({1, 999}, 2, 80);  // a step has no more than two
  check({9, 0}, 9, 100);   // all records
  // Where what is in common lies there once, labels are denser.
  CHECK(train::largest_batch(records, {.sequences = 2}, 4, {.labeled = 0.75}).labeled == 60);
  CHECK(train::largest_batch(records, {.sequences = 2}, 4, {.labeled = 0.25}).labeled == 40);
  // And rows are fewer: of two records, of all, but never fewer than the longest one's.
  CHECK(train::largest_batch(records, {.tokens = 999}, 2, {.rows = 0.6}).rows == 48);
  CHECK(train::largest_batch(records, {.tokens = 999}, 9, {.rows = 0.6}).rows == 60);
  CHECK(train::largest_batch(records, {.tokens = 50}, 9, {.rows = 0.6}).rows == 50);
  CHECK(train::largest_batch(records, {.tokens = 999}, 2, {.rows = 0.3}).rows == 40);
  CHECK(train::largest_batch(records, {.sequences = 2}, 9, {.rows = 0.6}).rows == 48);  // two at a time
}

TEST_CASE("memory: as few layers are checkpointed as the limit allows, all where that is asked for") {
  Model model;
  const train::LargestBatch batch{Index{1} << 24, 1};  // far more than what this process holds, and how that moves
  const auto needs = [&](Index recomputed) {
    return model.forecast(batch.rows, batch.labeled, recomputed).total() / 0x1p30;
  };
  settings::Config config;
  const auto planned = [&] { return model.plan(batch, {}, config); };
  CHECK(planned().recomputed == 0);
  CHECK(planned().needs.total() / 0x1p30 == needs(0));
  // Of the last layer nothing is gained: backward begins with it.
  CHECK(needs(4) == needs(3));
  for (const Index count : {1, 2, 3}) {
    CAPTURE(count);
    config.memory_limit_gib = run::resident_memory_gib() + (needs(count) + needs(count - 1)) / 2;
    CHECK(planned().recomputed == count);
    CHECK(planned().needs.total() / 0x1p30 == needs(count));
    const Quiet quiet;
    train::say_memory(planned(), 4, config);
    CHECK(quiet.said(concat("gradients of ", count, " of 4 layers are checkpointed to stay below ")));
  }
  config.memory_limit_gib = run::resident_memory_gib() + needs(4) / 2;
  CHECK_THROWS_WITH_AS(planned(), doctest::Contains("key memory_limit_gib: given "), ConfigError);
  config.gradient_checkpointing = true;  // which does not lift the limit
  CHECK_THROWS_WITH_AS(planned(), doctest::Contains("with every layer checkpointed "), ConfigError);
  for (const double limit : {(needs(4) + needs(2)) / 2, 2 * needs(0)}) {
    config.memory_limit_gib = run::resident_memory_gib() + limit;
    CHECK(planned().recomputed == 4);
    const Quiet quiet;
    train::say_memory(planned(), 4, config);
    CHECK_FALSE(quiet.said("to stay below"));
  }
  config.memory_limit_gib.reset();
  CHECK(planned().recomputed == 4);
}

TEST_CASE("memory: the limit is of the whole process, what it holds already included") {
  Model model;
  const train::LargestBatch batch{64, 64};
  const double needs = model.forecast(batch.rows, batch.labeled, 0).total();
  const double least = model.forecast(batch.rows, batch.labeled, 4).total();
  settings::Config config;
  config.memory_limit_gib = 2 * needs / 0x1p30;
  const auto planned = [&](double held) { return model.plan(batch, {}, config, held); };
  CHECK(planned(0.9 * needs).recomputed == 0);
  CHECK(planned(0.9 * needs).held == 0.9 * needs);
  CHECK(planned(1.01 * needs).recomputed > 0);
  CHECK_THROWS_AS(planned(2.01 * needs - least), ConfigError);
  // Where nobody says what is held, it is what this process has.
  config.memory_limit_gib = run::resident_memory_gib() / 2;
  CHECK_THROWS_WITH_AS(model.plan(batch, {}, config), doctest::Contains("with every layer checkpointed"),
                       ConfigError);  // nothing is evaluated
}

namespace {

/// What a store of parameters and its optimizer hold, by the slabs that they have.
template <class T>
void check_trained(const std::string& family, bool tied, bool adapter, bool own, int ranks) {
  CAPTURE(family);
  CAPTURE(tied);
  CAPTURE(adapter);
  CAPTURE(own);
  CAPTURE(ranks);
  const test::TempFolder temp;
  test::RandomModel shape;
  shape.family = family;
  shape.tied = tied;
  shape.hidden = 40;
  shape.ffn = 72;
  for (const char* bias : {"attention_bias", "mlp_bias"})
    if (family == "llama") shape.more[bias] = true;
  test::write_random_model(temp / "model", shape);
  cpu::Device dev{1};
  const auto source = model::Source::open(temp / "model");
  model::Decoder<cpu::Device, T> decoder(dev, source);
  model::AdapterConfig config;
  config.rank = 30;  // past a block of 1,024 elements
  config.targets = source.config().fused
                       ? std::vector<std::string>{"qkv_proj", "down_proj"}
                       : std::vector<std::string>{"q_proj", "k_proj", "v_proj", "up_proj", "down_proj"};
  config.rank_pattern = {{source.config().fused ? "layers.1.self_attn.qkv_proj" : "layers.1.self_attn.k_proj", 7}};
  const auto chosen = [&](const model::TensorInfo& info) {
    return own && info.name.find("layers.0.self_attn.o_proj") == std::string::npos;
  };
  adapter ? decoder.attach(dev, config, chosen) : decoder.train_own(dev, chosen);

  train::TrainedMemory held;
  auto& params = decoder.params();
  for (Index group = 0; group < params.groups(); ++group) {
    const auto slab = params.slab(group);
    held.masters += static_cast<double>(slab.value.size()) * sizeof(float);
    held.gradients += static_cast<double>(slab.grad.size()) * sizeof(float);
    if (!std::is_same_v<T, float>) held.copies += static_cast<double>(slab.value.size()) * sizeof(T);
  }
  Index largest = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    Index elements = 0;
    for (Index group = 0; group < params.groups(); ++group) elements += nn::share_size(params.size(group), rank, ranks);
    largest = std::max(largest, elements);
  }
  held.moments = 2 * static_cast<double>(largest) * sizeof(float);
  model::Blueprint blueprint = model::blueprint_of(source);
  if (adapter) blueprint.adapter = config;
  blueprint.chosen = chosen;
  const nn::ParamTable table = blueprint.parameters();
  REQUIRE(table.entries().size() == params.entries().size());
  for (std::size_t i = 0; i < table.entries().size(); ++i) {
    const auto &of_table = table.entries()[i], &of_store = params.entries()[i];
    CHECK(of_table.name == of_store.name);
    CHECK(of_table.storage == of_store.storage);
    CHECK(of_table.first_row == of_store.first_row);
    CHECK(of_table.rows == of_store.rows);
    CHECK(of_table.transposed == of_store.transposed);
    CHECK(table.elements_of(of_table) == params.table().elements_of(of_store));
  }
  REQUIRE(table.storages().size() == params.table().storages().size());
  for (std::size_t i = 0; i < table.storages().size(); ++i) {
    const auto &of_table = table.storages()[i], &of_store = params.table().storages()[i];
    CHECK(of_table.rows == of_store.rows);
    CHECK(of_table.cols == of_store.cols);
    CHECK(of_table.group == of_store.group);
    CHECK(of_table.layer == of_store.layer);
  }
  const auto forecast = train::trained_memory<T>(table.sizes([](std::string_view) { return true; }), ranks);
  CHECK(forecast.masters == held.masters);
  CHECK(forecast.copies == held.copies);
  CHECK(forecast.gradients == held.gradients);
  CHECK(forecast.moments == held.moments);
  CHECK(forecast.total() == held.masters + held.copies + held.gradients + held.moments);
  const train::MemoryBasis basis{blueprint, nn::machine_of(dev)};
  const auto plan = train::plan_memory<Cpu, T>(basis, {64, 64}, {}, settings::Config{}, 0);
  if (ranks == 1) CHECK(plan.trained.total() == held.total());
}

}  // namespace

TEST_CASE("memory: what trains is counted from the description as the store and the optimizer hold it") {
  for (const char* family : {"gemma2", "gemma3_text", "llama", "mistral", "phi3", "qwen2", "qwen3", "smollm3"})
    for (const bool tied : {false, true}) {
      check_trained<float>(family, tied, true, false, 1);
      check_trained<float>(family, tied, false, true, 3);
      check_trained<bf16>(family, tied, true, true, 1);
    }
}

TEST_CASE("memory: a model without an adapter needs nothing for one") {
  Model model;
  const auto with = model.forecast(64, 64, 0);
  train::MemoryBasis other = model.basis();
  other.model.adapter.reset();
  other.model.chosen = [](const model::TensorInfo& info) {
    return info.name == "model.layers.0.input_layernorm.weight";
  };
  const auto without = train::forecast_memory<Cpu, float>(other, 64, 64, 0);
  // h of rank 8, of each layer and projections that share an input
  CHECK(with.activations - without.activations ==
        4 * (64 * 7 * 8 * sizeof(float) + 4 * model.dev.arena().padding().band));
}

TEST_CASE("memory: an evaluation counts, in the forecast and against the limit") {
  Model model;
  const train::LargestBatch small{16, 16}, large{4096, 4096};
  const auto training = model.forecast(small.rows, small.labeled, 0);
  const auto evaluating = model.forecast_evaluation(large.rows, large.labeled);
  REQUIRE(evaluating.total() > 2 * training.total());
  settings::Config config;
  CHECK(model.plan(small, {}, config, 0).needs.total() == training.total());
  CHECK(model.plan(small, large, config, 0).needs.total() == evaluating.total());
  config.memory_limit_gib = 1.01 * evaluating.total() / 0x1p30;
  CHECK(model.plan(small, large, config, 0).recomputed == 0);
  for (const bool checkpoints : {false, true}) {
    config.gradient_checkpointing = checkpoints;
    config.memory_limit_gib = 0.99 * evaluating.total() / 0x1p30;
    CHECK_THROWS_WITH_AS(model.plan(small, large, config, 0), doctest::Contains("a smaller per_device_eval_batch_size"),
                         ConfigError);
  }
}

TEST_CASE("memory: answers that an evaluation generates have keys and values of all that are answered together") {
  Model model;
  const train::LargestBatch small{16, 16}, evaluated{4096, 4096, 50};
  settings::Config config;
  const auto workspace_of = [&](const train::LargestBatch& evaluation, bool predicts) {
    config.eval_predict = predicts;
    return model.plan(small, evaluation, config, 0).needs.workspace;
  };
  // 16 records in 4 layers of 2 heads of 32 numbers, of the longest record and an answer.
  const auto tokens = static_cast<double>(50 + config.answer_tokens());
  CHECK(workspace_of(evaluated, true) - workspace_of(evaluated, false) == 16 * 2 * 4 * 2 * 32 * tokens * 4);
  CHECK(workspace_of({}, true) == workspace_of({}, false));
  CHECK(train::cache_bytes<bf16>(model.source.config(), 3) == 16 * 2 * 4 * 2 * 32 * 3 * 2);
  // What ranks gather for a checkpoint: of an adapter the factors of q, k and v, of 24 rows, or one of 384 columns.
  const nn::ParamTable params = model.basis().model.parameters();
  CHECK(train::largest_tensor<float>(params, {}) == 24 * 128 * 4);
  CHECK(train::largest_tensor<float>(params, [](std::string_view name) { return name.find("o_proj") != name.npos; }) ==
        8 * 128 * 4);
}

TEST_CASE("memory: the sums of a step's units count") {
  Model model;
  const auto workspace_of = [&](Index units) {
    settings::Config config;
    config.step_units = units;
    return model.plan({16, 16}, {}, config, 0).needs.workspace;
  };
  const double gradients = model.plan({16, 16}, {}, settings::Config{}, 0).trained.gradients;
  CHECK(gradients > 0);
  // The whole's sum, and one for each level of the tree below it.
  CHECK(workspace_of(2) - workspace_of(1) == 2 * gradients);
  CHECK(workspace_of(4) - workspace_of(1) == 3 * gradients);
  CHECK(workspace_of(5) - workspace_of(1) == 4 * gradients);
}

TEST_CASE("memory: the largest evaluation is of the longest windows, as many as are taken together") {
  const auto check = [](const data::EncodeSummary& records, Index sequences, Index window, Index rows) {
    CAPTURE(rows);
    const auto batch = train::largest_evaluation(records, sequences, window);
    CHECK(batch.rows == rows);
    CHECK(batch.labeled == (rows + 1) / 2);
  };
  check(records_of({10, 40, 20, 30}), 2, 2048, 80);
  check(records_of({10, 40, 20, 30}), 8, 2048, 100);  // all of them
  check(records_of({10, 40, 20, 30}), 2, 16, 32);     // windows
  check(records_of({10, 40, 20, 30}), 99, 16, 200);   // half a window on each: all tokens twice at most
  CHECK(train::largest_evaluation({}, 8, 2048).rows == 0);
}

TEST_CASE("memory: the forecast of an evaluation is close to what the arena came to hold, whichever part decides") {
  const Quiet quiet;
  const auto check = [](Index ffn, bool all_labeled) {
    CAPTURE(ffn);
    CAPTURE(all_labeled);
    Model model(ffn);
    const Index rows = test::effort<Index>(1024, 512, "memory: half of 1,024 rows that are evaluated");
    data::Batch batch;
    data::Example example;
    for (std::size_t i = 0; i < 128; ++i) example.tokens.push_back(static_cast<std::int32_t>(i));
    example.labels = example.tokens;
    if (!all_labeled) std::fill(example.labels.begin(), example.labels.end() - 1, ignore_index);
    for (Index place = 0; place < rows / 128; ++place) batch.append(example, place);
    model.decoder.evaluate(model.dev, batch);
    const auto forecast = model.forecast_evaluation(batch.rows(), batch.labeled);
    const auto& arena = model.dev.arena();
    CHECK(forecast.activations == static_cast<double>(arena.peak_saved()));
    const auto workspace = static_cast<double>(arena.peak_scratch());
    CHECK(forecast.workspace >= workspace);
    CHECK(forecast.workspace < 4 / 3.0 * workspace + 0.75 * 0x1p20);
  };
  check(384, true);    // the head
  check(384, false);   // attention
  check(1536, false);  // the MLP
}

TEST_CASE("memory: the forecast is close to what the arena came to hold, whichever part decides") {
  const Quiet quiet;
  const auto check = [](Index ffn, bool recomputes, bool all_labeled, bool shares = false) {
    CAPTURE(ffn);
    CAPTURE(recomputes);
    CAPTURE(all_labeled);
    CAPTURE(shares);
    Model model(ffn);  // whose arena has not held anything yet
    model.decoder.recompute(recomputes ? 4 : 0);
    train::Stepper<cpu::Device, float> stepper(model.dev, model.decoder, {}, 1, 1);
    data::Batch batch;
    data::Example example;
    for (int i = 0; i < test::effort(256, 48, "memory: records of 256 tokens, for such of 48"); ++i)
      example.tokens.push_back(i);
    example.labels = example.tokens;
    if (!all_labeled) std::fill(example.labels.begin(), example.labels.end() - 1, ignore_index);
    for (Index place = 0; place < (recomputes ? 4 : 2); ++place) {
      if (shares) example.labels[example.labels.size() / 2] = example.tokens[example.labels.size() / 2];
      batch.append(std::vector<data::Example>(shares ? 2 : 1, example), std::vector<Index>(shares ? 2 : 1, place),
                   shares);
      for (auto& id : example.tokens) id += shares;
    }
    stepper.accumulate(model.dev, 0, std::span(&batch, 1));
    const auto forecast = model.forecast(batch.rows(), batch.labeled, recomputes ? 4 : 0);
    const auto& arena = model.dev.arena();
    CHECK(forecast.activations == static_cast<double>(arena.peak_saved()));
    // The bound of what kernels hold besides allows for ways that they do not take here.
    const auto workspace = static_cast<double>(arena.peak_scratch());
    CHECK(forecast.workspace >= workspace);
    CHECK(forecast.workspace < 4 / 3.0 * workspace + 0.75 * 0x1p20);
  };
  for (const bool recomputes : {false, true}) {
    if (!recomputes && !test::effort(true, false, "memory: layers that keep all")) continue;
    check(384, recomputes, true);   // the head
    check(384, recomputes, false);  // attention
    check(384, recomputes, false, true);
    check(1536, recomputes, false);  // the MLP
  }
}

TEST_CASE("memory: a tree of many rows and little work does not have each thread hold sums of all of them") {
  // Its work is that of each of the sequences beside it, which are enough for all threads.
  cpu::Device dev(16);
  std::vector<kernel::Segment> segments{{0, 100}};
  for (int i = 0; i < 100; ++i) segments.push_back({segments.back().end, segments.back().end + 50, 0});
  for (int i = 0; i < 5; ++i) segments.push_back({segments.back().end, segments.back().end + 1150});
  const Index rows = segments.back().end;
  const kernel::AttentionShape shape{2, 2, 64, 0.125};
  Tensor<cpu::Device, float> x(dev, rows, 128), out(dev, rows, 128), dq(dev, rows, 128), dk(dev, rows, 128),
      dv(dev, rows, 128);
  kernel::fill(dev, x.view(), 0.5);
  auto saved = kernel::save_attention<float>(dev, rows, 2);
  const View<cpu::Device, const float> in = x.view();
  kernel::attention<cpu::Device, float>(dev, shape, in, in, in, segments, segments, out.view(), &saved);
  kernel::attention_backward<cpu::Device, float>(dev, shape, in, in, in, out.view(), segments, saved, in, dq.view(),
                                                 dk.view(), dv.view());
  const auto scratch = static_cast<double>(dev.arena().peak_scratch());
  constexpr double tiles = 704 * 1024;  // of a thread, as kernel::Buffers has them
  CHECK(scratch < 16 * tiles + 1.4 * 2 * 2 * static_cast<double>(rows + 128) * (64 + 16) * 4);
}

namespace {

/// What the device, and the host beside it, come to hold of what trains as stages begin, by their own accounts.
template <class D, class T>
void check_stages(bool full, bool offload) {
  CAPTURE(full);
  CAPTURE(offload);
  const test::TempFolder temp;
  test::RandomModel shape;
  shape.layers = 3;
  shape.hidden = 32;
  shape.ffn = 80;
  test::write_random_model(temp / "model", shape);
  const auto source = model::Source::open(temp / "model");
  D dev(1);
  model::Decoder<D, T> decoder(dev, source);
  const std::size_t without = dev.allocated().now();

  std::vector<train::Stage> stages;
  for (const std::string_view layers : {"01", "01", "0", "12", "", "2"}) {
    auto& stage = stages.emplace_back();
    if (layers.empty()) continue;  // all of them
    stage.trains = [=](std::string_view name) {
      const auto place = name.find("layers.");
      return place != name.npos && layers.find(name[place + 7]) != layers.npos;
    };
  }
  settings::Config config;
  if (offload) config.offload = "optimizer";
  dev.allocated().restart_peak();
  model::AdapterConfig adapter;
  adapter.rank = 30;
  full ? decoder.train_own(dev, [](const model::TensorInfo&) { return true; }) : decoder.attach(dev, adapter);
  decoder.params().train(dev, stages[0].trains);
  comm::Single<D> alone;
  train::Stepper<D, T> stepper(dev, decoder, {}, 1, 1, alone, {}, {.on_host = offload, .threads = 1});
  model::Blueprint blueprint = model::blueprint_of(source);
  if (full) {
    blueprint.chosen = [](const model::TensorInfo&) { return true; };
  } else {
    blueprint.adapter = adapter;
  }
  const train::MemoryBasis basis{blueprint, nn::machine_of(dev)};
  const auto plans = train::held_in_stages<D, T>(basis, stages, config, static_cast<double>(dev.allocated().now()));
  constexpr double sums = 256;  // of losses and norms
  const auto others = static_cast<double>(D::reads_host_memory ? 0 : without);
  const auto now = [&] { return static_cast<double>(dev.allocated().now()) - others; };
  const auto peak = [&] { return static_cast<double>(dev.allocated().peak()) - others; };
  const auto host = [&](const auto& f) {
    double bytes = 0;
    if constexpr (!D::reads_host_memory) {
      if (offload)
        bytes = static_cast<double>(stepper.with_optimizer(dev, [&](auto& at, auto&) { return f(at.allocated()); }));
    }
    return bytes;
  };
  CHECK(plans[0].present == plans[0].held);
  CHECK(peak() <= plans[0].held + plans[0].entering + sums);
  CHECK(peak() >= plans[0].held + plans[0].entering);
  auto before = decoder.params().sizes();
  for (std::size_t i = 1; i < stages.size(); ++i) {
    CAPTURE(i);
    const double held_before = now();
    dev.allocated().restart_peak();
    host([](auto& bytes) { return bytes.restart_peak(), 0; });
    const train::Stage all{.trains = [](std::string_view) { return true; }};
    stepper.train(dev, stages[i].trains ? stages[i].trains : all.trains);
    CHECK(now() <= plans[i].held + sums);
    CHECK(now() >= plans[i].held);
    CHECK(peak() <= plans[i].held + plans[i].entering + sums);
    const auto sizes = decoder.params().sizes();
    if (i == 1) {  // as before
      CHECK(plans[i].entering == 0);
      CHECK(peak() == held_before);
    } else {
      // Exactly, where the stage before this one is what it was entered from.
      const double moving = train::memory_to_move<D, T>(before, sizes, offload);
      CHECK(peak() - plans[i].held + plans[i].trained.total() <= moving + sums);
      CHECK(peak() - plans[i].held + plans[i].trained.total() >= moving);
      CHECK(plans[i].entering >= moving - plans[i].trained.total());
    }
    if (offload) {
      CHECK(host([](auto& bytes) { return bytes.peak(); }) <= plans[i].host->optimizer);
      CHECK(host([](auto& bytes) { return bytes.peak(); }) > 0.4 * plans[i].host->optimizer);
    }
    before = sizes;
  }
}

}  // namespace

TEST_CASE("memory: as a stage begins, no more is held than was forecast, and nothing moves where nothing changes") {
  for (const bool full : {false, true}) {
    check_stages<cpu::Device, float>(full, false);
    check_stages<cpu::Device, bf16>(full, false);
    for (const bool offload : {false, true}) check_stages<proof::Device, bf16>(full, offload);
  }
}

TEST_CASE("memory: what a stage begins with counts, and what the arena of earlier ones keeps") {
  train::MemoryPlan plan;
  plan.needs = {100, 20, 30};
  plan.held = 1000;
  CHECK(plan.peak() == 1150);
  CHECK_FALSE(plan.peaks_at_start());
  plan.before = {100, 25, 10};
  CHECK(plan.peak() == 1155);
  CHECK_FALSE(plan.peaks_at_start());
  plan.entering = 40;
  CHECK(plan.peak() == 1175);
  CHECK(plan.peaks_at_start());
  plan.sums_before = 5;
  CHECK(plan.peak() == 1180);
  plan.sums = 20;  // of the workspace
  CHECK(plan.peak() == 1180);
  plan.before.workspace = 300;
  CHECK(plan.peak() == 1470);

  Model model;
  const train::LargestBatch batch{64, 64};
  settings::Config config;
  train::MemoryPlan start;
  start.held = 0x1p30;
  const double needs = model.forecast(batch.rows, batch.labeled, 0).total();
  config.memory_limit_gib = 1 + 2 * needs / 0x1p30;
  CHECK(model.plan(batch, {}, config, start).recomputed == 0);
  start.entering = 0x1p28;
  CHECK_THROWS_WITH_AS(model.plan(batch, {}, config, start),
                       doctest::Contains("but while what trains changes 1.25 GiB are expected"), ConfigError);
  config.memory_limit_gib = 1.26;
  const auto planned = model.plan(batch, {}, config, start);
  CHECK(planned.peak() == 0x1p30 + 0x1p28);
  const Quiet quiet;
  train::say_memory(planned, 4, config);
  CHECK(quiet.said("memory: a peak of about 1.25 GiB is expected while what trains changes (weights "));
}

TEST_CASE("memory: a stage begins with what any before it made of the arena, without sums but the last one's") {
  Model model;
  settings::Config config;
  config.step_units = 2;
  config.stages = {{.until_step = 1}, {.until_step = 2}, {.until_step = 3}};
  config.stages[0].per_device_train_batch_size = 8;
  config.stages[1].per_device_train_batch_size = 1;
  config.stages[2].per_device_train_batch_size = 2;
  const train::Plan plan = train::plan_of(config, data::Sequences::below(64));
  const auto plans = train::plan_memory<Cpu, float>(model.basis(), plan, records_of({64, 64, 64, 64, 64, 64, 64, 64}),
                                                    {}, config, 0x1p30);
  REQUIRE(plans.size() == 3);
  CHECK(plans[0].needs.activations > plans[1].needs.activations);
  CHECK(plans[0].needs.workspace > plans[1].needs.workspace);
  for (const train::MemoryPlan& stage : plans) CHECK(stage.sums == 2 * stage.trained.gradients);
  for (const std::size_t i : {1u, 2u}) {
    CHECK(plans[i].before.activations == plans[0].needs.activations);
    CHECK(plans[i].before.workspace == plans[0].needs.workspace - plans[0].sums);
    CHECK(plans[i].sums_before == plans[i - 1].sums);
  }
}

TEST_CASE("memory: a plan that does not fit names what needs most: the steps, an evaluation, or the stage's begin") {
  Model model;
  const train::LargestBatch batch{64, 64}, evaluated{4096, 4096};
  settings::Config config;
  const auto refusal = [&](const train::MemoryPlan& start, const train::LargestBatch& evaluation, double limit) {
    config.memory_limit_gib = limit / 0x1p30;
    return test::message_of<ConfigError>([&] { (void)model.plan(batch, evaluation, config, start); });
  };
  const auto needed = [](double bytes) {
    return concat(fixed(bytes / 0x1p30, 2), " GiB are expected; allowed: more, ");
  };
  train::MemoryPlan start;
  start.held = 0x1p30;
  // What earlier stages made of the arena is more than the stage itself needs, and is no matter of its begin.
  start.before = {0, 0x1p28, 0x1p28};
  start.entering = 16;
  CHECK(test::holds(refusal(start, {}, 1.4 * 0x1p30),
                    "but while what trains changes " + needed(1.5 * 0x1p30) +
                        "or fewer tensors that train, or a smaller max_tokens_per_micro_batch or cutoff_len"));
  start.before.activations = 0;
  CHECK(test::holds(refusal(start, {}, 1.1 * 0x1p30), "but with every layer checkpointed " + needed(1.25 * 0x1p30) +
                                                          "or a smaller max_tokens_per_micro_batch or cutoff_len"));
  // With all of it, what is needed is more than either alone.
  start.before.workspace = 0;
  start.entering = 0x1p29;
  CHECK(test::holds(refusal(start, {}, 1.1 * 0x1p30),
                    "but while what trains changes " + needed(1.5 * 0x1p30) + "or fewer tensors that train"));
  CHECK_FALSE(test::holds(refusal(start, {}, 1.1 * 0x1p30), "cutoff_len"));
  start.entering = 0;
  const double evaluates = model.forecast_evaluation(evaluated.rows, evaluated.labeled).total();
  CHECK(test::holds(refusal(start, evaluated, 0x1p30), "but for an evaluation " + needed(0x1p30 + evaluates) +
                                                           "or a smaller per_device_eval_batch_size or cutoff_len"));
  start.entering = 2 * evaluates;
  CHECK(test::holds(refusal(start, evaluated, 0x1p30), "but while what trains changes "));
}

TEST_CASE("memory: a report counts gradients and moments of what trains now, and values of all that may") {
  Model model;
  const run::MemoryUse all = run::memory_use(model.dev, model.decoder);
  CHECK(all.gradients == all.trained);
  CHECK(all.optimizer == 2 * all.gradients);
  model.decoder.params().train(model.dev, [](std::string_view name) { return name.find("layers.3.") != name.npos; });
  const run::MemoryUse one = run::memory_use(model.dev, model.decoder);
  CHECK(one.trained == all.trained);
  CHECK(one.gradients == all.gradients / 4);
  CHECK(one.optimizer == 2 * one.gradients);
}

TEST_CASE("memory: so many layers as are asked for are checkpointed, from the first on") {
  Model model;
  for (const Index count : {0, 1, 4, 2}) {
    CAPTURE(count);
    model.decoder.recompute(count);
    for (Index i = 0; i < 4; ++i) CHECK(model.decoder.stack().layer(i).recomputes() == (i < count));
  }
}

TEST_CASE(
    "memory: after the largest micro-batch nothing more is taken from the arena, and between steps nothing is held") {
  const Quiet quiet;
  Model model;
  train::Stepper<cpu::Device, float> stepper(model.dev, model.decoder, {}, 1, 1);
  const auto batch_of = [](std::size_t length) {
    data::Example example;
    example.tokens.assign(length, 7);
    example.labels = example.tokens;
    data::Batch batch;
    batch.append(example, 0);
    batch.append(example, 1);
    return batch;
  };
  const Arena& arena = model.dev.arena();
  const std::size_t longest = test::effort<std::size_t>(200, 64, "memory: sequences of 200 tokens, for such of 64");
  const data::Batch largest = batch_of(longest);
  stepper.accumulate(model.dev, 0, std::span(&largest, 1));
  const std::size_t saved = arena.peak_saved(), scratch = arena.peak_scratch();
  for (const std::size_t length : {std::size_t{1}, std::size_t{33}, longest - 1, longest}) {
    const data::Batch batch = batch_of(length);
    stepper.accumulate(model.dev, 1, std::span(&batch, 1));
    CHECK(arena.saved_bytes() == 0);
    CHECK(arena.scratch_bytes() == 0);
    CHECK(arena.peak_saved() == saved);
    CHECK(arena.peak_scratch() == scratch);
  }
}

}  // namespace memory_test
