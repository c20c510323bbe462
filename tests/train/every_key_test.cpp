// Runs whose keys are all away from their defaults, against loops made by hand of the library's lower layers, as
// examples/custom_loop.cpp is: a key that does not arrive where it should changes a number of the log or of the
// adapter.

#include <doctest/doctest.h>

#include <functional>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/quiet.hpp"
#include "support/talking_model.hpp"
#include "support/workshop.hpp"

namespace every_key_test {

using namespace lora;
using namespace lora::test;
using D = cpu::Device;

namespace {

/// A model, conversations of one or two answers, and plain texts in a field of their own.
struct Shop {
  TempFolder temp = TempFolder::in_memory();
  std::vector<std::string> talk{(temp / "talk.jsonl").native()}, texts{(temp / "texts.jsonl").native()};

  Shop() {
    write_talking_model(temp / "model");
    io::write_file(temp / "model" / "tokenizer.json", std::string_view(byte_tokenizer_json(llama_marks)));
    std::string lines;
    for (int i = 0; i < 9; ++i) {
      io::Json turns = io::Json::array();
      for (int turn = 0; turn <= i % 2; ++turn) {
        turns.push_back({{"role", "user"}, {"content", concat("What is ", i * i, " less ", turn, "?")}});
        turns.push_back({{"role", "assistant"}, {"content", std::string(static_cast<std::size_t>(3 + 2 * i), 'x')}});
      }
      lines += io::to_text({{"messages", turns}}, -1) + "\n";
    }
    io::write_file(talk[0], std::string_view(lines));
    lines.clear();
    for (int i = 0; i < 5; ++i) lines += concat("{\"body\": \"text number ", i * i, "\"}\n");
    io::write_file(texts[0], std::string_view(lines));
  }
};

/// What a loop made by hand has found.
struct ByHand {
  std::vector<io::Json> log;
  std::vector<float> adapter;
};

struct Loop {
  std::uint64_t seed;
  Index steps, per_step, logging_steps, eval_steps;
  inputs::MicroBatchLimit limit;
  optim::AdamWSettings adamw;
  double max_grad_norm;
  std::function<double(Index)> learning_rate;
  Index eval_batch, eval_window;
  Index units = 1;
};

template <class T>
ByHand train_by_hand(D& dev, model::Decoder<D, T>& decoder, const inputs::Records& records, data::Order order,
                     const inputs::Records& held_back, const std::vector<Index>& held, const Loop& loop,
                     const io::Path& folder) {
  ByHand result;
  comm::Single<D> alone;
  train::Stepper<D, T> stepper(dev, decoder, loop.adamw, loop.max_grad_norm, loop.seed, alone, {.units = loop.units});
  const data::StepPlan plan{order.size(), loop.per_step};
  bool clips = false;
  for (Index step = 0; step < loop.steps; ++step) {
    const auto samples = plan.samples(step);
    std::vector<std::vector<data::Batch>> units;
    for (Index unit = 0; unit < loop.units; ++unit) {
      const auto own = data::StepPlan::unit_of(samples, unit, loop.units);
      units.push_back(records.micro_batches(order.between(own.begin, own.end), loop.limit, own.begin - samples.begin));
    }
    const auto found = stepper.accumulate(dev, step, std::span<const std::vector<data::Batch>>(units));
    const double rate = loop.learning_rate(step);
    stepper.update(dev, found, rate);
    clips = clips || found.grad_norm > loop.max_grad_norm;
    const Index done = step + 1;
    if (done % loop.logging_steps == 0 || done == loop.steps)
      result.log.push_back({{"step", done},
                            {"epoch", plan.epoch_after(done)},
                            {"loss", found.loss},
                            {"learning_rate", rate},
                            {"grad_norm", found.grad_norm},
                            {"tokens", found.tokens},
                            {"labelled_tokens", found.labeled}});
    if (done % loop.eval_steps == 0 || done == loop.steps) {
      const auto totals = train::evaluate(dev, decoder, static_cast<Index>(held.size()),
                                          [&](Index i) { return held_back[held[static_cast<std::size_t>(i)]]; },
                                          {.batch = loop.eval_batch, .window = loop.eval_window});
      result.log.push_back({{"step", done}, {"eval_loss", totals.loss()}, {"eval_perplexity", totals.perplexity()}});
    }
  }
  CHECK(clips);  // or max_grad_norm would not be seen
  io::create_folders(folder);
  model::save_adapter(dev, decoder, folder);
  result.adapter = adapter_values(folder);
  return result;
}

std::vector<Index> first(Index count) {
  std::vector<Index> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), Index{0});
  return numbers;
}

void expect_same(const RunResult& run, const ByHand& hand) {
  const auto lines = log_of(run.final_model.parent_path());
  REQUIRE(lines.size() == hand.log.size());
  for (std::size_t i = 0; i < lines.size(); ++i)
    for (const auto& item : hand.log[i].items()) {
      const std::string& field = item.key();
      const io::Json& value = item.value();
      CAPTURE(i);
      CAPTURE(field);
      CHECK(lines[i].at(field) == value);
    }
  CHECK(adapter_values(run.final_model) == hand.adapter);
}

/// Conversations in float32: a share of the records held back, in the order of the file, by tokens, warmed up by a
/// share of the steps.
Config first_config(const Shop& shop) {
  Config config;
  config.model_name_or_path = (shop.temp / "model").native();
  config.dtype = "float32";
  config.template_name = "llama3_2";
  config.date = "2023-02-28";
  config.rope_theta = 500;
  config.no_rope_layers = {1};
  config.dataset.assign(shop.talk.begin(), shop.talk.end());
  config.val_size = 2;
  config.cutoff_len = 170;
  config.train_on_last_turn_only = true;
  config.max_samples = 8;
  config.shuffle = false;
  config.lora_rank = 3;
  config.lora_alpha = 4.5;
  config.lora_dropout = 0.125;
  config.lora_target = {"q_proj", "v_proj", "down_proj"};
  config.use_rslora = true;
  config.max_tokens_per_micro_batch = 300;
  config.gradient_accumulation_steps = 4;
  config.per_device_eval_batch_size = 1;
  config.learning_rate = 0.02;
  config.num_train_epochs = 4;
  config.lr_scheduler_type = "cosine";
  config.warmup_ratio = 0.3;
  config.weight_decay = 0.1;
  config.adam_beta1 = 0.8;
  config.adam_beta2 = 0.95;
  config.adam_epsilon = 1e-4;
  config.max_grad_norm = 0.05;
  config.gradient_checkpointing = true;
  config.output_dir = (shop.temp / "first").native();
  config.seed = 7;
  config.logging_steps = 2;
  config.save_steps = 0;
  config.eval_steps = 3;
  config.threads = 1;
  return config;
}

ByHand first_by_hand(const Shop& shop) {
  D dev(1);
  auto source = model::Source::open(shop.temp / "model");
  source.config().rope.theta = 500;
  source.config().rotates[1] = false;
  model::Decoder<D, float> decoder(dev, source);
  model::AdapterConfig adapter;
  adapter.rank = 3;
  adapter.alpha = 4.5;
  adapter.dropout = 0.125;
  adapter.rslora = true;
  adapter.targets = {"q_proj", "v_proj", "down_proj"};
  decoder.attach(dev, adapter);
  model::init_adapter(dev, decoder, 7);

  const auto tokenizer = tokenizer::Tokenizer::from_folder(shop.temp / "model");
  data::EncodeOptions encoding;
  encoding.train_on_last_turn_only = true;
  encoding.render.date = "2023-02-28";
  const auto records = [&](Index cutoff) {
    encoding.cutoff_len = cutoff;
    return inputs::Records(data::Dataset::open(shop.talk, {.max_samples = 8}),
                           data::Encoder(&tokenizer, data::ChatTemplate::named("llama3_2"), encoding));
  };
  const auto split = data::split_records(8, 2, 7);
  Loop loop;
  loop.seed = 7;
  loop.steps = 8;  // 6 records are 2 steps an epoch
  loop.per_step = 4;
  loop.logging_steps = 2;
  loop.eval_steps = 3;
  loop.limit = {.tokens = 300};
  loop.adamw = {.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-4, .weight_decay = 0.1};
  loop.max_grad_norm = 0.05;
  loop.learning_rate = [schedule = optim::Schedule{optim::Decay::cosine, 3, 8}](Index step) {
    return 0.02 * schedule.factor(step);
  };
  loop.eval_batch = 1;
  loop.eval_window = 170;
  const auto training = records(170);
  Index cut = 0, batches = 0;
  for (const Index record : split.train.numbers()) cut += training[record].truncated;
  data::Order order(split.train, 7, false);
  batches = static_cast<Index>(training.micro_batches(order.between(0, 4), loop.limit).size());
  // Or cutoff_len and max_tokens_per_micro_batch would not be seen.
  CHECK((cut > 0 && cut < 6));
  CHECK((batches > 1 && batches < 4));
  return train_by_hand(dev, decoder, training, std::move(order), records(100'000), split.held_back.numbers(), loop,
                       shop.temp / "first by hand");
}

/// Conversations and texts in bfloat16: two files and one to evaluate on, shuffled, by sequences, warmed up by a number
/// of steps.
Config second_config(const Shop& shop) {
  Config config;
  config.model_name_or_path = (shop.temp / "model").native();
  config.dtype = "bfloat16";
  config.template_name = "chatml";
  config.dataset = {shop.talk[0], shop.texts[0]};
  config.eval_dataset.assign(shop.texts.begin(), shop.texts.end());
  config.max_eval_samples = 4;
  config.train_on_prompt = true;
  config.text_column = "body";
  config.per_device_train_batch_size = 2;
  config.gradient_accumulation_steps = 3;
  config.step_units = 3;
  config.zero_stage = 1;
  config.ddp_timeout = 60;
  config.deepspeed = (shop.temp / "deepspeed.json").native();
  io::write_file(config.deepspeed, std::string_view(R"({"zero_optimization": {"stage": 1}})"));
  config.per_device_eval_batch_size = 2;
  config.learning_rate = 0.01;
  config.max_steps = 5;
  config.lr_scheduler_type = "constant";
  config.warmup_steps = 2;
  config.max_grad_norm = 0.01;
  config.output_dir = (shop.temp / "second").native();
  config.seed = 8;
  config.logging_steps = 1;
  config.eval_steps = 2;
  config.threads = 2;
  return config;
}

ByHand second_by_hand(const Shop& shop) {
  D dev(2);
  const auto source = model::Source::open(shop.temp / "model");
  model::Decoder<D, bf16> decoder(dev, source);
  model::AdapterConfig adapter;  // rank 8, alpha 16, every projection
  adapter.rank = 8;
  adapter.alpha = 16;
  adapter.targets = model::projection_names_of({});
  decoder.attach(dev, adapter);
  model::init_adapter(dev, decoder, 8);

  const auto tokenizer = tokenizer::Tokenizer::from_folder(shop.temp / "model");
  data::EncodeOptions encoding;
  encoding.train_on_prompt = true;
  const auto records = [&](const std::vector<std::string>& files) {
    return inputs::Records(data::Dataset::open(files, {.text_column = "body"}),
                           data::Encoder(&tokenizer, data::ChatTemplate::named("chatml"), encoding));
  };
  Loop loop;
  loop.seed = 8;
  loop.steps = 5;
  loop.per_step = 6;
  loop.logging_steps = 1;
  loop.eval_steps = 2;
  loop.limit = {.sequences = 2};
  loop.units = 3;
  loop.adamw = {};
  loop.max_grad_norm = 0.01;
  loop.learning_rate = [](Index step) { return 0.01 * (step < 2 ? static_cast<double>(step) / 2 : 1); };
  loop.eval_batch = 2;
  loop.eval_window = 2048;
  const auto training = records({shop.talk[0], shop.texts[0]});
  return train_by_hand(dev, decoder, training, data::Order(first(training.size()), 8, true), records(shop.texts),
                       first(4), loop, shop.temp / "second by hand");
}

}  // namespace

TEST_CASE("every key: a run whose keys are all away from their defaults is the loop that is made by hand") {
  const Quiet quiet;
  const Shop shop;
  expect_same(fine_tune(first_config(shop)), first_by_hand(shop));
  expect_same(fine_tune(second_config(shop)), second_by_hand(shop));
}

TEST_CASE("every key: none that decides a number of a run is left at its default in both of these runs") {
  const Shop shop;
  const io::Json defaults = settings::to_json(Config(), settings::train_command),
                 one = settings::to_json(first_config(shop), settings::train_command),
                 two = settings::to_json(second_config(shop), settings::train_command);
  // What a run reads and writes besides, how it is stopped and goes on; and what has tests of its own: what to start
  // from, reasoning, losses that are not finite, empty answers, memory, full fine-tuning, early stopping, curriculum,
  // stages, what sequences have in common.
  const std::set<std::string_view> others = {"adapter_name_or_path",
                                             "dataset_dir",
                                             "device",
                                             "device_type",
                                             "full_determinism",
                                             "enable_thinking",
                                             "finetuning_type",
                                             "load_best_model_at_end",
                                             "memory_limit_gib",
                                             "offload",
                                             "on_non_finite",
                                             "overwrite_output_dir",
                                             "preview",
                                             "profile",
                                             "report_to",
                                             "resume_from_checkpoint",
                                             "save_total_limit",
                                             "share_prefixes",
                                             "skip_empty_answers",
                                             "max_shard_size",
                                             "model_preset",
                                             "tokenizer_name_or_path",
                                             "train_from_scratch",
                                             "early_stopping_patience",
                                             "early_stopping_threshold",
                                             "eval_on_start",
                                             "eval_predict",
                                             "loraplus_lr_ratio",
                                             "additional_target",
                                             "max_new_tokens",
                                             "neftune_noise_alpha",
                                             "metric_for_best_model",
                                             "stages",
                                             "mix_strategy",
                                             "interleave_probs",
                                             "use_curriculum",
                                             "curriculum_field",
                                             "curriculum_stages",
                                             "curriculum_seed",
                                             "trainable"};
  for (const auto& item : defaults.items()) {
    const std::string& key = item.key();
    const io::Json& value = item.value();
    CAPTURE(key);
    CHECK((others.count(key) == 1) == (one.at(key) == value && two.at(key) == value));
  }
}

}  // namespace every_key_test
