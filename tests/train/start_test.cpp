// What a run says and writes before its first step and behind its last, word for word.

#include "lora/train/start.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/hash.hpp"
#include "lora/train/measure.hpp"
#include "lora/train/non_finite.hpp"
#include "lora/train/prepared.hpp"
#include "lora/train/same_on_ranks.hpp"
#include "lora/train/summary.hpp"
#include "support/byte_tokenizer.hpp"
#include "support/message_of.hpp"
#include "support/proof_device.hpp"
#include "support/quiet.hpp"
#include "support/random_model.hpp"
#include "support/random_tokens.hpp"
#include "support/temp_folder.hpp"

namespace start_test {

using namespace lora;
using test::message_of;
using test::Quiet;
using train::Plan;

namespace {

train::Stage stage(Index steps, Index sequences, Index warmup = 0) {
  return {.sequences_per_step = sequences, .learning_rate = 0.5, .schedule = {optim::Decay::linear, warmup, steps}};
}
Plan plan_of(std::vector<train::Stage> stages) {
  return {data::Order(data::Sequences::below(10), 7, true), 1, std::move(stages)};
}

/// One step alone that draws a and b, one that says otherwise and has no step, and three that draw b for x and y.
data::Curriculum lessons() {
  data::SequenceClasses classes{{"a", "b", "c"}, {0, 1, 0, 1, 0, 1, 0, 1, -1, 2}};
  return {{{0.1, {{"a", 0.75}, {"b", 0.25}}}, {0.2, {{"a", 1}}}, {1, {{"b", 0.5}, {"x", 0.25}, {"y", 0.25}}}},
          data::Sequences::below(10),
          classes,
          7,
          4,
          4};
}
const std::string lessons_said =
    "curriculum: steps 11 to 11: 3 a, 1 b\n"
    "curriculum: steps 12 to 14: 12 b\n"
    "no record is labeled x, y: their shares of the curriculum go to the others\n"
    "2 records have a label of no mix, or none, and are not drawn\n";

/// Two tensors of a layer and one of none, of which two share a matrix.
nn::ParamTable table() {
  nn::ParamTable params;
  const auto pair = params.add({.rows = 5, .cols = 3, .layer = 0}), single = params.add({.rows = 1, .cols = 7});
  params.name({"layers.0.q.weight", pair, 0, 2});
  params.name({"layers.0.k.weight", pair, 2, 3});
  params.name({"norm.weight", single, 0, 1});
  return params;
}

model::Config shape_of(Index vocabulary, bool tied) {
  test::RandomModel model;
  model.vocabulary = vocabulary;
  model.tied = tied;
  return model::parse_config(test::config_json(model), "config.json");
}

/// Of these lengths; of each record all is labeled but the first token, or nothing.
data::EncodeSummary records_of(const std::vector<std::pair<std::size_t, bool>>& records) {
  data::EncodeSummary summary;
  for (const auto& [length, learned] : records) {
    data::Example example;
    example.tokens.assign(length, 1);
    example.labels.assign(length, learned ? 1 : ignore_index);
    example.lost = !learned && length == 9;
    summary.add(example);
  }
  return summary;
}

/// On a device of its own memory, so that nothing said of it is this machine's.
train::MemoryPlan memory_plan() {
  train::MemoryPlan plan;
  plan.needs = {2 * 0x1p30, 3 * 0x1p30, 4 * 0x1p30};
  plan.held = 0x1p30;
  plan.trained = {.masters = 256 * 0x1p20, .copies = 64 * 0x1p20, .gradients = 128 * 0x1p20, .moments = 64 * 0x1p20};
  plan.present = 0x1p29;
  plan.host.emplace();
  return plan;
}
const std::string memory_said =
    "memory: a peak of about 10.00 GiB is expected on the device (weights 2.00 GiB, activations 3.00 GiB, workspace "
    "4.00 GiB, held already 1.00 GiB, of it 512.0 MiB for what trains); ";

train::StepWork some_work() {
  return {.sequences = 8,
          .tokens = 100.4,
          .rows = 100.4,
          .micro_batches = 2.5,
          .work = {.products = 3e12, .attention = 1.5e12}};
}
const std::string work_said =
    "a step: 8 sequences, 100 tokens in 2.5 micro-batches, 4.5 TFLOP, on average of the first\n";

std::string said_by(const auto& call) {
  const Quiet quiet;
  call();
  return quiet.text;
}

}  // namespace

TEST_CASE("start: a curriculum tells what each part draws, what is missing and what is never drawn") {
  CHECK(said_by([] { train::say_curriculum(lessons(), 10); }) == lessons_said);
  const data::Curriculum whole({{1, {{"a", 0.5}, {"b\nc", 0.5}}}}, data::Sequences::below(2), {{"a", "b\nc"}, {0, 1}},
                               7, 4, 2);
  CHECK(said_by([&] { train::say_curriculum(whole, 0); }) == "curriculum: steps 1 to 4: 4 a, 4 b\\nc\n");
  const data::Curriculum lacks({{1, {{"a", 0.5}, {"x", 0.5}}}}, data::Sequences::below(2), {{"a"}, {0, 0}}, 7, 4, 2);
  CHECK(said_by([&] { train::say_curriculum(lacks, 0); }) ==
        "curriculum: steps 1 to 4: 8 a\nno record is labeled x: its share of the curriculum goes to the others\n");
}

TEST_CASE("start: a mix tells what an epoch has of each file and what the file has") {
  const data::Mixture mixture{{{"file 0", {0, 1, 2}}, {"file 1", {3, 4, 5, 6}}}, {3, 1}};
  const std::vector<std::string> names = {"one", "two"};
  CHECK(said_by([&] { train::say_mixture(mixture, names); }) ==
        "mix: an epoch has 4 sequences: 3 (75.0 %) of one's 3, 1 (25.0 %) of two's 4\n");
  CHECK(said_by([] { train::say_mixture({}, {}); }) == "");
}

TEST_CASE("start: a stage tells its steps, its rate and what of all that may train does") {
  const std::function<bool(std::string_view)> no_norm = [](std::string_view name) {
    return name.find("norm") == name.npos;
  };
  CHECK(train::text_of_trained({}, table()) == "3 of 3 tensors train, 22 numbers: layers.0.{q,k}.weight, norm.weight");
  CHECK(train::text_of_trained(no_norm, table()) == "2 of 3 tensors train, 15 numbers: layers.0.{q,k}.weight");
  std::vector<train::Stage> stages = {stage(4, 4), stage(3, 5, 3)};
  stages[1].trains = no_norm;
  const Plan plan = plan_of(stages);
  CHECK(train::text_of_steps(0, plan) == "4 of 4 sequences, 3 an epoch");
  CHECK(train::text_of_steps(1, plan) == "3 of 5 sequences, 2 an epoch");
  CHECK(
      said_by([&] { train::say_stage("stage 2 (late)", 1, plan, table()); }) ==
      "stage 2 (late): steps 5 to 7: 3 of 5 sequences, 2 an epoch; learning rate 0.5; 2 of 3 tensors train, 15 "
      "numbers: layers.0.{q,k}.weight\n"
      "stage 2 (late): the warm-up of 3 steps does not end within the 3 steps: the learning rate never reaches 0.5\n");
  for (const auto& enough : {stage(4, 4, 3), stage(4, 4), stage(0, 4)})
    CHECK(said_by([&] { train::warn_of_warmup("", enough); }) == "");
  stages[0].curriculum = lessons();
  CHECK(train::text_of_steps(0, plan_of(stages)) == "4 of 4 sequences");
  settings::Config config;
  CHECK_NOTHROW(train::expect_something_trains(config, plan, table()));
  stages[1].trains = [](std::string_view name) { return name == "layers.0.weight"; };
  config.stages = {{.until_step = 4}, {.name = "late"}};
  CHECK(message_of<ConfigError>([&] { train::expect_something_trains(config, plan_of(stages), table()); }) ==
        "stage 2 (late): none of the model's 3 trainable tensors is left to train");
  config.stages.clear();
  CHECK(message_of<ConfigError>([&] { train::expect_something_trains(config, plan_of({stages[1]}), table()); }) ==
        "none of the model's 3 trainable tensors is left to train");
}

TEST_CASE("start: rows of the vocabulary that no token has are counted once where the head is the embedding") {
  const auto tokenizer = tokenizer::Tokenizer::from_json(test::byte_tokenizer_json(), "test");
  REQUIRE(tokenizer.vocab_size() == 260);
  for (const bool tied : {false, true}) {
    const model::Config shape = shape_of(267, tied);
    CHECK(said_by([&] { train::say_unused_rows(shape, &tokenizer); }) ==
          concat("7 of the 267 rows of the vocabulary have no token of the tokenizer: ", tied ? 112 : 224, " of ",
                 model::parameters_of(shape), " parameters are never used\n"));
    CHECK(said_by([&] { train::say_unused_rows(shape, nullptr); }) == "");
    for (const Index vocabulary : {259, 260})
      CHECK(said_by([&] { train::say_unused_rows(shape_of(vocabulary, tied), &tokenizer); }) == "");
  }
}

TEST_CASE("start: a run of one stage tells its data, what trains, its steps, their work and its memory") {
  const auto tokenizer = tokenizer::Tokenizer::from_json(test::byte_tokenizer_json(), "test");
  settings::Config config;
  config.cutoff_len = 9;
  model::Blueprint model;
  model.config = shape_of(267, true);
  model.adapter.emplace();
  model.adapter->rank = 3;
  const nn::ParamTable params = model.parameters();
  Index parameters = 0;
  for (const auto& entry : params.entries()) parameters += params.elements_of(entry);
  const data::EncodeSummary records = records_of({{5, true}, {9, false}, {4, false}});
  const auto said = [&](const std::vector<train::Stage>& stages, const data::EncodeSummary& of, bool initial) {
    return said_by([&] {
      train::say_start(config, model, of, plan_of(stages), some_work(), memory_plan(), {0, 9 * std::size_t{0x40000000}},
                       initial, &tokenizer);
    });
  };
  const std::string trained = train::text_of_trained({}, params) + "\n",
                    rest = work_said + memory_said + "9.00 GiB are available\n";
  CHECK(said({stage(4, 4)}, records, false) ==
        "data: " + records.text() + "\n" +
            "2 of 3 records have no labeled token and are left out, 1 of them because of cutoff_len 9\n" + trained +
            concat("adapter: rank 3, ", parameters, " parameters; steps: 4 of 4 sequences, 3 an epoch\n") + rest);
  // With a warm-up and a curriculum, from random weights, of which all may train and the last norm does.
  model.adapter.reset();
  model.chosen = [](const model::TensorInfo& info) { return info.layer < 0; };
  model.config.max_position_embeddings = 8;
  config.finetuning_type = "full";
  std::vector<train::Stage> stages = {stage(14, 4, 14)};
  stages[0].trains = [](std::string_view name) { return name == "model.norm.weight"; };
  stages[0].curriculum = lessons();
  data::EncodeSummary some = records;
  some.pass_over();
  some.pass_over();
  some.pass_over();
  std::string lessons_from_first = lessons_said;
  for (const auto& [from, to] :
       {std::pair{"steps 11 to 11", "steps 1 to 1"}, std::pair{"steps 12 to 14", "steps 2 to 4"}})
    lessons_from_first.replace(lessons_from_first.find(from), std::string_view(from).size(), to);
  CHECK(said(stages, some, true) ==
        "data: " + some.text() + "\n" +
            "about 4 of 6 records have no labeled token and are left out, 2 of them because of cutoff_len 9\n"
            "the longest record has 9 tokens, but the model was made for 8 (max_position_embeddings and its rope "
            "scaling): what it computes past them may be poor\n"
            "1 of 2 tensors train, 16 numbers: model.norm.weight\n"
            "the warm-up of 14 steps does not end within the 14 steps: the learning rate never reaches 0.5\n"
            "7 of the 267 rows of the vocabulary have no token of the tokenizer: 112 of " +
            concat(model::parameters_of(model.config), " parameters are never used\ntrained: ", 267 * 16 + 16, " of ",
                   model::parameters_of(model.config), " parameters; steps: 14 of 4 sequences\n") +
            lessons_from_first + rest);
}

TEST_CASE("start: a run of several stages tells each, where it cuts records off, and which needs most memory") {
  settings::Config config;
  config.cutoff_len = 30;
  config.stages = {{.name = "short", .until_step = 4, .cutoff_len = 8}, {.until_step = 7}, {.until_step = 9}};
  model::Blueprint model;
  model.config = shape_of(61, false);
  model.adapter.emplace();
  const nn::ParamTable params = model.parameters();
  std::vector<train::Stage> stages = {stage(4, 4), stage(3, 5), stage(2, 2)};
  stages[0].limit.cutoff_len = 8;
  stages[1].limit.cutoff_len = 30;
  stages[2].limit.cutoff_len = 12;  // which no record reaches
  stages[1].trains = [](std::string_view name) { return name.find("layers.1.") != name.npos; };
  const Plan plan = plan_of(stages);
  const data::EncodeSummary records = records_of({{12, true}, {5, true}});
  Index parameters = 0;
  for (const auto& entry : params.entries()) parameters += params.elements_of(entry);
  train::MemoryPlan memory = memory_plan();
  memory.stage = 1;
  const auto stage_said = [&](const char* name, std::size_t i) {
    return said_by([&] { train::say_stage(name, i, plan, params); });
  };
  CHECK(said_by([&] {
          train::say_start(config, model, records, plan, some_work(), memory, {0, 9 * std::size_t{0x40000000}}, false,
                           nullptr);
        }) == "data: " + records.text() + "\n" + concat("adapter: rank 8, ", parameters, " parameters; steps: 9\n") +
                  stage_said("stage 1 (short)", 0) +
                  "stage 1 (short): records of more than 8 tokens are cut off there, as its cutoff_len says; the "
                  "longest has 12\n" +
                  stage_said("stage 2", 1) + stage_said("stage 3", 2) + "most memory is needed by stage 2\n" +
                  work_said + memory_said + "9.00 GiB are available\n");
}

TEST_CASE("start: where sequences have rows in common it is said how many are computed, else that nothing is shared") {
  train::StepWork step = some_work();
  settings::Config config;
  const auto warned = [&] { return said_by([&] { train::say_sharing(config, step); }); };
  CHECK(warned().empty());
  config.share_prefixes = true;
  CHECK(warned() ==
        "share_prefixes: nothing is shared in the first steps: no sequences of a micro-batch have 16 tokens or more in "
        "common, from the first one on and without the last before what is learned; max_tokens_per_micro_batch or "
        "per_device_train_batch_size decides how many meet in one\n");
  config.zero_stage = 2;
  config.ranks = 2;
  CHECK(
      warned().ends_with("is learned; with zero_stage 2 without max_tokens_per_micro_batch per_device_train_batch_size "
                         "of them meet in one\n"));
  step.rows = 60.2;
  CHECK(warned().empty());
  CHECK(said_by([&] { train::say_work(step); }) ==
        "a step: 8 sequences, 100 tokens, 60 of them computed, in 2.5 micro-batches, 4.5 TFLOP, on average of the "
        "first\n");
  step.sequences = step.rows = step.tokens = 0;  // no step is planned
  CHECK(warned().empty());
}

TEST_CASE("start: without a step nothing is said of its work") {
  CHECK(said_by([] { train::say_work({}); }) == "");
  CHECK(said_by([] { train::say_work(some_work()); }) == work_said);
}

TEST_CASE("start: the memory's line says what is available, and what will not fit is warned of") {
  settings::Config config;
  train::MemoryPlan plan = memory_plan();
  const auto said = [&](double gib) {
    return said_by([&] { train::say_memory(plan, 4, config, {0, static_cast<std::size_t>(gib * 0x1p30)}); });
  };
  const std::string warning =
      "this may not fit into memory: set gradient_checkpointing true, or a smaller max_tokens_per_micro_batch or "
      "cutoff_len\n";
  // Half a GiB is there already, and so are the weights.
  CHECK(said(7.5) == memory_said + "7.50 GiB are available\n");
  CHECK(said(7) == memory_said + "7.00 GiB are available\n" + warning);
  plan.recomputed = 3;
  CHECK(said(8) == memory_said + "8.00 GiB are available\n");  // without a limit they are as was asked for
  config.memory_limit_gib = 12.5;
  CHECK(said(8) == memory_said + "8.00 GiB are available\n" +
                       "gradients of 3 of 4 layers are checkpointed to stay below 12.5 GiB\n");
  config.gradient_checkpointing = true;
  CHECK(said(8) == memory_said + "8.00 GiB are available\n");
  plan.host = train::HostMemory{.weights = 1.5 * 0x1p30, .optimizer = 0x1p29, .loading = 0x1p31};
  CHECK(plan.host->total() == 3.5 * 0x1p30);
  plan.host->loading = 0x1p28;
  CHECK(plan.host->total() == 2 * 0x1p30);
  CHECK(
      test::holds(said(8), "memory of the host: 1.50 GiB for weights that are streamed, 0.50 GiB for the optimizer; "));
  plan.entering = 0x1p34;
  CHECK(
      said(8).starts_with("memory: a peak of about 19.00 GiB is expected on the device while what trains changes "
                          "(weights 2.00 GiB, "));
  plan.host.reset();
  CHECK(said(0).starts_with("memory: a peak of about 19.00 GiB is expected while what trains changes (weights "));
}

TEST_CASE("start: what offload takes on the host is refused where it is one byte too much") {
  constexpr std::size_t mib = std::size_t{1} << 20;
  CHECK_NOTHROW(train::expect_host_has(3 * 0x1p20, 0x1p20, 2 * mib));
  CHECK(message_of<ConfigError>([] { train::expect_host_has(3 * 0x1p20, 0x1p20, 2 * mib - 1); }) ==
        "key offload: the optimizer's state needs 3.0 MiB of the host's memory, but 3.0 MiB are available; allowed: "
        "none, or params with an adapter");
}

TEST_CASE("start: layers that are streamed or shared out are told with the memory that they take") {
  settings::Config config;
  const auto said = [&](const std::optional<model::LayerStreaming>& streaming) {
    return said_by([&] { train::say_offload(streaming, config, std::size_t{5} << 20); });
  };
  using From = model::WeightPlaces::From;
  for (const Index zero_stage : {0, 2}) {
    config.zero_stage = zero_stage;
    CHECK(said(std::nullopt) == "");
  }
  config.zero_stage = 3;
  CHECK(said(std::nullopt) ==
        "zero_stage 3: the model's weights stay mapped from their files, which the processes of a host share; "
        "otherwise as zero_stage 2\n");
  constexpr std::size_t mib = std::size_t{1} << 20;
  const auto sizes = [&](From from, std::size_t host) { return model::LayerStreaming{from, 8 * mib, 2 * mib, host}; };
  CHECK(said(sizes(From::ranks, 0)) ==
        "zero_stage 3: of the layers as they are stored, 8.0 MiB, this rank has its part, and "
        "gathers each ahead of its use: 2.0 MiB of the device's memory\n");
  CHECK(said(sizes(From::ranks, 3 * mib)) ==
        "zero_stage 3: of the layers as they are stored, 8.0 MiB, this rank has its part, and "
        "gathers each ahead of its use: 2.0 MiB of the device's memory and 3.0 MiB of page-locked memory\n");
  config.finetuning_type = "full";
  const std::string values =
      "zero_stage 3: of the weights that train this rank has its part, and gathers each layer ahead of its use: 5.0 "
      "MiB of memory\n";
  CHECK(said(std::nullopt) == values);
  CHECK(said(sizes(From::ranks, 0))
            .starts_with(values + "zero_stage 3: of the layers as they are stored, 8.0 MiB, this rank has"));
  const auto on_host = [&](Index zero_stage) {
    config.zero_stage = zero_stage;
    return said_by([&] { train::say_offload(std::nullopt, config, std::size_t{5} << 20, std::size_t{6} << 20); });
  };
  CHECK(on_host(0) ==
        "offload: the weights that train lie beside the optimizer's state in 6.0 MiB of page-locked memory, and each "
        "layer is copied ahead of its use: 5.0 MiB of the device's memory\n");
  CHECK(on_host(3) ==
        "offload: the weights that train, of which this rank has its part, lie beside the optimizer's state in 6.0 MiB "
        "of page-locked memory, and each layer is gathered ahead of its use: 5.0 MiB of the device's memory\n");
  config.finetuning_type = "lora";
  config.zero_stage = 0;
  const std::string copied =
      "offload: the layers, 8.0 MiB, are copied to 2.0 MiB of the device's memory ahead of their use, from 3.0 MiB of "
      "page-locked memory that ";
  CHECK(said(sizes(From::memory, 3 * mib)) == copied + "holds all of them\n");
  CHECK(said(sizes(From::files, 3 * mib)) == copied + "threads of the host fill from the files\n");
}

TEST_CASE("start: layers are shared out by several ranks of devices with memory of their own alone") {
  using Npu = proof::Device;
  settings::Config config;
  config.threads = 3;
  for (const Index zero_stage : {2, 3})
    for (const int ranks : {1, 2}) {
      config.zero_stage = zero_stage;
      CHECK(train::weight_places<Npu>(config, ranks).shares_layers == (zero_stage == 3 && ranks == 2));
      CHECK_FALSE(train::weight_places<cpu::Device>(config, ranks).shares_layers);
      CHECK(message_of<ConfigError>([&] { train::expect_sharing_fits<cpu::Device>(config, ranks); }) ==
            (zero_stage == 3 && ranks == 1 ? "key zero_stage: given 3, but a single process has nobody to share layers "
                                             "with; allowed: 0, 1 or 2, or more processes"
                                           : "nothing was thrown"));
    }
  config.eval_predict = true;
  CHECK_NOTHROW(train::expect_sharing_fits<cpu::Device>(config, 2));
  CHECK(message_of<ConfigError>([&] { train::expect_sharing_fits<Npu>(config, 2); }) ==
        "key eval_predict: given true, but with zero_stage 3 NPUs gather each layer together, and answers differ in "
        "length; allowed: false, or zero_stage 0, 1 or 2");
  config.finetuning_type = "full";
  CHECK(message_of<ConfigError>([&] { train::expect_sharing_fits<cpu::Device>(config, 2); }) ==
        "key eval_predict: given true, but with zero_stage 3 ranks gather each layer together, and answers differ in "
        "length; allowed: false, or zero_stage 0, 1 or 2");
  config.finetuning_type = "lora";
  config.zero_stage = 2;
  CHECK_NOTHROW(train::expect_sharing_fits<Npu>(config, 2));
  for (const std::string offload : {"none", "optimizer", "params", "all"}) {
    CAPTURE(offload);
    config.offload = offload;
    const auto places = train::weight_places<Npu>(config, 1);
    CHECK(places.streams_layers == (offload == "params" || offload == "all"));
    CHECK_FALSE(places.trains_on_host);
    CHECK(places.threads == 3);
    const auto state = train::state_place(config);
    CHECK(state.on_host == (offload == "optimizer" || offload == "all"));
    CHECK(state.threads == 3);
  }
  config.finetuning_type = "full";
  CHECK(train::weight_places<Npu>(config, 1).trains_on_host);
}

TEST_CASE("start: a run's files say its settings, its device and more lines, and a command where there is one") {
  const test::TempFolder folder;
  settings::Config config;
  config.lora_rank = 5;
  config.threads = 2;
  train::write_run_files(folder.path(), config, "the device", "one more: line\n", "");
  CHECK(io::read_json(folder / "run_config.json") == settings::to_json(config, settings::train_command));
  CHECK(io::read_file(folder / "environment_info.txt") ==
        run::describe_environment(2) + "device: the device\none more: line\n");
  CHECK_FALSE(io::is_there(folder / "train_command.txt"));
  config.threads.reset();
  train::write_run_files(folder.path(), config, "d", "", "lora train");
  CHECK(io::read_file(folder / "environment_info.txt") == run::describe_environment(1) + "device: d\n");
  CHECK(io::read_file(folder / "train_command.txt") == "lora train\n");
}

TEST_CASE("start: a run ends with its numbers, the best evaluation and where it all lies") {
  settings::Config config;
  config.output_dir = "some/run";
  run::RunMetrics metrics;
  metrics.steps = 1;
  metrics.total_tokens = 30;
  metrics.tokens_per_second = 120.4;
  metrics.mean_train_loss = 1.25;
  metrics.train_loss = 2.5;
  const std::string numbers = " and 30 tokens in 1:05, 120 tokens/s; mean loss 1.2500, of the last step 2.5000",
                    lies =
                        "the numbers are in some/run/training_metrics.json and some/run/trainer_log.jsonl, checkpoints "
                        "in some/run/checkpoints\n";
  const auto said = [&] { return said_by([&] { train::say_end(config, metrics, 65); }); };
  CHECK(said() == "done: 1 step" + numbers + "\n" + lies);
  metrics.computed_tokens = 8;
  CHECK(said().starts_with("done: 1 step and 30 tokens, 26.7 % of them computed, in 1:05, 120 tokens/s; mean"));
  metrics.computed_tokens.reset();
  metrics.steps = 2;
  metrics.best_step = 4;
  metrics.best_eval_loss = 3;
  const std::string best = "done: 2 steps" + numbers + "; the best evaluation was step 4's, with loss 3.0000";
  CHECK(said() == best + "\n" + lies);
  metrics.weights_step = 2;
  CHECK(said() == best + "\n" + lies);
  metrics.weights_step = 4;
  CHECK(said() == best + ", whose weights final_model has\n" + lies);
}

TEST_CASE("start: an evaluation tells its loss, and how answers score where some were generated") {
  model::Evaluation evaluation{.step = 3, .loss_sum = 6, .labeled = 4, .correct = 3};
  const auto said = [&] { return said_by([&] { train::say_evaluation(evaluation); }); };
  const std::string loss = "step 3: evaluation loss 1.5000, perplexity 4.482, token accuracy 75.0 %";
  CHECK(said() == loss + "\n");
  evaluation.exact_match = 0.25;
  evaluation.rouge_l = 0.5;
  CHECK(said() == loss + ", exact match 25.0 %, ROUGE-L 50.0 %\n");
}

TEST_CASE("start: a step that is not finite tells its numbers and its records, unit by unit") {
  data::RecordLists lists;
  for (int i = 0; i < 4; ++i) lists["mine"].add_tokens(std::vector<std::int32_t>{1, 2});
  const std::vector<std::string> names = {"mine"};
  const inputs::Records records{data::Dataset::open(names, {}, lists), data::Encoder(nullptr, std::nullopt, {})};
  std::vector<std::vector<data::Batch>> units(2);
  units[0].resize(2);
  units[0][0].records = {0, 2};
  units[0][1].records = {1};
  units[1].resize(1);
  units[1][0].records = {3};
  const train::StepResult result{.loss = std::numeric_limits<double>::quiet_NaN(),
                                 .grad_norm = std::numeric_limits<double>::infinity()};
  CHECK(train::describe_non_finite(7, result, units, records) ==
        "step 7: loss nan, gradient norm inf; its records: mine:1, mine:3, mine:2, mine:4");
}

namespace {

/// A tiny model with some records of tokens.
struct Desk {
  test::TempFolder temp = test::TempFolder::in_memory();
  settings::Config config{};

  Desk() {
    test::write_random_model(temp / "model", {});
    test::write_tokens(temp / "train.jsonl", 10, 1);
    test::write_tokens(temp / "more.jsonl", 5, 2);
    config.model_name_or_path = (temp / "model").native();
    config.dataset = {(temp / "train.jsonl").native()};
    config.output_dir = (temp / "run").native();
    config.per_device_train_batch_size = 2;
    config.gradient_accumulation_steps = 2;
  }
  std::unique_ptr<train::Prepared> prepared(train::RunOptions options = {}) const {
    return std::make_unique<train::Prepared>(cpu::Threads(1), config, inputs::open_source(config), std::move(options));
  }
};

}  // namespace

TEST_CASE("start: a step has as many units as are given, at most its sequences, and else one for each rank") {
  Desk desk;
  const auto units = [&] { return desk.prepared()->config.step_units; };
  CHECK(units() == 1);
  desk.config.ranks = 2;
  CHECK(units() == 2);
  desk.config.from_command_line = {"step_units"};  // the default, but said
  CHECK(units() == 1);
  desk.config.from_command_line.clear();
  desk.config.step_units = 8;
  CHECK(units() == 8);
  desk.config.step_units = 9;
  CHECK(message_of<ConfigError>([&] { units(); }) ==
        "key step_units: given 9, allowed: at most the 8 sequences of a step");
}

TEST_CASE("start: files are counted where there are several or where one has a name") {
  Desk desk;
  using Names = std::vector<std::string>;
  CHECK(desk.prepared()->file_names.empty());
  desk.config.dataset[0].name = "own";
  CHECK(desk.prepared()->file_names == Names{"own"});
  desk.config.dataset = {(desk.temp / "train.jsonl").native(), (desk.temp / "more.jsonl").native()};
  CHECK(desk.prepared()->file_names == Names{"train", "more"});
}

TEST_CASE("start: ranks compare the build, every setting but paths and threads, the data and where they go on") {
  Desk desk;
  desk.config.seed = 7;
  desk.config.eval_dataset = {(desk.temp / "more.jsonl").native()};
  train::RunOptions options;
  options.environment = "products: some\n";
  const io::Json noted = io::json_object({{"first", "x"}, {"second", 2}});
  const auto run = desk.prepared(options);
  const auto text_of = [](const std::vector<comm::Fact>& facts) {
    std::string text;
    for (const comm::Fact& fact : facts) text += concat(fact.name, " = ", fact.value, "\n");
    return text;
  };
  std::string expected = concat("the build = ", run::describe_build(), "; products: some\n\n");
  const io::Json all = settings::to_json(run->config, settings::train_command);
  for (const auto& [key, value] : all.items()) {
    bool own = false;
    for (const char* name : {"model_name_or_path", "adapter_name_or_path", "dataset", "dataset_dir", "eval_dataset",
                             "output_dir", "threads", "deepspeed"})
      own = own || key == name;
    if (!own) expected += concat("the setting ", key, " = ", io::to_text(value, -1), "\n");
  }
  expected += "the setting first = \"x\"\nthe setting second = 2\n";
  CHECK(test::holds(expected, "\nthe setting seed = 7\n"));
  const std::string data =
      concat("the evaluation data = ", checksum_text(run->data.eval().dataset().fingerprint()), "\n");
  CHECK(text_of(train::facts_of(*run, noted, std::nullopt)) ==
        expected + data + "the checkpoint to go on from = none\n");
  CHECK(text_of(train::facts_of(*run, noted, 12)) == expected + data + "the checkpoint to go on from = step 12\n");
  desk.config.eval_dataset.clear();
  CHECK_FALSE(test::holds(text_of(train::facts_of(*desk.prepared(), noted, 0)), "the evaluation data"));
  CHECK(text_of(train::facts_of(*desk.prepared(), noted, 0)).ends_with("go on from = step 0\n"));
}

}  // namespace start_test
