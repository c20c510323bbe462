// Evaluations while training that also generate the answers.

#include <doctest/doctest.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lora/core/profile.hpp"
#include "lora/inputs/model_files.hpp"
#include "lora/inputs/run_data.hpp"
#include "lora/train/measure.hpp"
#include "lora/train/prepared.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/talking_model.hpp"
#include "support/thread_ranks.hpp"
#include "support/workshop.hpp"

namespace eval_predict_test {

using namespace lora;
using namespace lora::test;
using D = cpu::Device;

namespace {

constexpr Index answer_length = 9;

/// A model that talks, records to train on, and questions whose answers a test chooses.
struct Examination {
  TempFolder temp = TempFolder::in_memory();
  std::vector<std::string> questions;

  explicit Examination(int count = 20, const RandomModel& model = {}) {  // more than one group
    write_talking_model(temp / "model", DType::f32, model);
    std::string lines;
    for (int i = 0; i < 6; ++i)
      lines += io::to_text({{"prompt", concat("say ", i)}, {"completion", concat("word ", i * i)}}, -1) + "\n";
    io::write_file(temp / "train.jsonl", std::string_view(lines));
    for (int i = 0; i < count; ++i) questions.push_back(concat("what is ", i * 7, "?"));
    write_answers(std::vector<std::string>(questions.size(), "nothing"));
  }

  void write_answers(const std::vector<std::string>& answers) {
    std::string lines;
    for (std::size_t i = 0; i < questions.size(); ++i)
      lines += io::to_text({{"prompt", questions[i]}, {"completion", answers[i]}}, -1) + "\n";
    io::write_file(temp / "eval.jsonl", std::string_view(lines));
  }

  Config config(const std::string& output) const {
    Config config;
    config.model_name_or_path = (temp / "model").native();
    config.dataset = {(temp / "train.jsonl").native()};
    config.eval_dataset = {(temp / "eval.jsonl").native()};
    config.output_dir = (temp / output).native();
    config.dtype = "float32";
    config.template_name = "chatml";
    config.lora_rank = 2;
    config.gradient_accumulation_steps = 2;
    config.learning_rate = 0.05;
    config.max_steps = 6;
    config.eval_steps = 2;
    config.logging_steps = 1;
    config.eval_predict = true;
    config.max_new_tokens = answer_length;
    config.threads = 1;
    return config;
  }
};

/// What the run's model says to the questions, each asked alone and without a group.
std::vector<std::string> said_to(const Running& running, const Examination& exam) {
  const auto* model = running.model<D, float>();
  REQUIRE(model != nullptr);
  const auto& tokenizer = *running.text().tokenizer;
  std::vector<std::string> answers;
  for (const std::string& question : exam.questions) {
    const std::vector<std::vector<std::int32_t>> prompt{byte_tokens(chatml_question(question))};
    decode::GenerateOptions options;
    options.max_new_tokens = answer_length;
    options.vocabulary = tokenizer.vocab_size();
    options.stop_ids = {tokenizer.id_of("<|im_end|>").value()};
    const auto tokens =
        decode::generate(model->dev, model->decoder, std::span<const std::vector<std::int32_t>>(prompt), options);
    answers.push_back(tokenizer.decode(tokens[0], true));
  }
  return answers;
}

}  // namespace

TEST_CASE("eval_predict: exact match and ROUGE-L are those of the answers of that step's model") {
  Quiet quiet;
  Examination exam;
  std::vector<std::vector<std::string>> answers;
  RunOptions options;
  options.on_evaluation = [&](const Evaluation&, Running& running) { answers.push_back(said_to(running, exam)); };
  io::write_json(exam.temp / "model" / "generation_config.json", {{"stop_strings", {"e"}}});
  fine_tune(exam.config("first"), options);
  CHECK(quiet.said("generation_config.json: not followed: stop_strings\n"));
  std::filesystem::remove(exam.temp / "model" / "generation_config.json");
  REQUIRE(answers.size() == 3);
  CHECK(answers[0] != answers[2]);
  // The answers of the middle evaluation become the right ones: for some whole, for some with a word more.
  auto wanted = answers[1];
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (data::strip(wanted[i]).empty()) wanted[i] = "nothing";
    if (i % 3 == 0) wanted[i] += " extra";
  }
  exam.write_answers(wanted);
  Config config = exam.config("second");
  config.load_best_model_at_end = true;
  config.metric_for_best_model = "eval_exact_match";
  config.save_steps = 2;
  fine_tune(config);
  std::size_t evaluation = 0;
  double best = 0;
  for (const io::Json& line : log_of(exam.temp / "second")) {
    if (!line.contains("eval_loss")) continue;
    double exact = 0, rouge = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const std::string& answer = answers[evaluation][i];
      exact += data::strip(answer) == data::strip(wanted[i]) ? 1.0 / 20 : 0;
      rouge += data::rouge_l(answer, wanted[i]) / 20;
    }
    CHECK(line.at("eval_exact_match") == doctest::Approx(exact));
    CHECK(line.at("eval_rouge_l") == doctest::Approx(rouge));
    REQUIRE(line.at("eval_samples").size() == 3);
    for (std::size_t i = 0; i < 3; ++i)
      CHECK(line.at("eval_samples")[i] ==
            io::Json{{"prompt", exam.questions[i]}, {"predict", answers[evaluation][i]}, {"label", wanted[i]}});
    if (evaluation == 1) best = exact;
    ++evaluation;
  }
  CHECK(evaluation == 3);
  CHECK(best >= 0.5);
  CHECK(adapter_values(exam.temp / "second" / "final_model") ==
        adapter_values(exam.temp / "second" / "checkpoints" / "checkpoint-4"));
  const io::Json metrics = io::read_json(exam.temp / "second" / "training_metrics.json");
  CHECK(quiet.said(concat("the best evaluation, with loss ", fixed(metrics.at("best_eval_loss").get<double>(), 4),
                          ", was step 4's: ")));
  CHECK(metrics.at("eval_exact_match").is_number());
  CHECK(metrics.at("eval_rouge_l").is_number());
  bool shown = false;
  for (const std::string& line : events_of(exam.temp / "second"))
    shown = shown || (line.find("eval/exact_match=") != line.npos && line.find("eval/rouge_l=") != line.npos);
  CHECK(shown);
  // Generating changes nothing of the training.
  CHECK(adapter_values(exam.temp / "first" / "final_model") ==
        adapter_values(exam.temp / "second" / "checkpoints" / "checkpoint-6"));
}

TEST_CASE("eval_predict: of records that are held back these are answered, and no others") {
  const Quiet quiet;
  const Examination exam;
  Config config = exam.config("held_back");
  config.dataset = {(exam.temp / "eval.jsonl").native()};
  config.eval_dataset.clear();
  config.val_size = 0.25;
  const inputs::RunData data(cpu::Threads(1), config, config.model_name_or_path, 260,
                             [](std::string_view) { return io::Json(); });
  const auto answered = data.answered();
  std::set<std::string> trained, asked;
  for (Index i = 0; i < data.order().size(); ++i)
    trained.insert(data.train().dataset()[data.order()[i]].messages[0].content);
  for (const data::Sample& sample : answered) asked.insert(sample.messages[0].content);
  CHECK(trained.size() == 15);
  CHECK(asked.size() == 5);
  for (const std::string& question : asked) CHECK(trained.count(question) == 0);
}

TEST_CASE("eval_predict: a run that is stopped while it answers evaluates again when it goes on") {
  Quiet quiet;
  Examination exam;
  // A model made for shorter sequences warns of an answer that is longer: that is when the run is stopped.
  io::Json model = io::read_json(exam.temp / "model" / "config.json");
  model["max_position_embeddings"] = 36;
  io::write_json(exam.temp / "model" / "config.json", model);
  fine_tune(exam.config("whole"));
  std::atomic<int> stop{0};
  RunOptions options;
  options.stop = &stop;
  options.log = [&](log::Level, std::string_view line) {
    if (line.find("eval.jsonl:") != line.npos) stop = SIGTERM;
  };
  Config config = exam.config("part");
  CHECK(fine_tune(config, options).stopped_by == SIGTERM);
  CHECK(run::Checkpoints(exam.temp / "part").steps().back() == 2);
  config.resume_from_checkpoint = "auto";
  fine_tune(config);
  CHECK(numbers_of(exam.temp / "part") == numbers_of(exam.temp / "whole"));
}

TEST_CASE("answers: a text that ends an answer is not part of it") {
  const Quiet quiet;
  Examination exam;
  Config config = exam.config("run");
  config.max_steps = 2;
  RunOptions options;
  Index cut = 0;
  options.on_evaluation = [&](const Evaluation&, Running& running) {
    const auto* model = running.model<D, float>();
    REQUIRE(model != nullptr);
    const auto& text = running.text();
    const data::Encoder encoder(text.tokenizer.get(), text.chat_template, {});
    std::vector<data::Sample> samples;
    for (const std::string& question : exam.questions) {
      samples.emplace_back();
      samples.back().messages = {{"user", question}};
    }
    decode::GenerateOptions generate;
    generate.max_new_tokens = answer_length;
    const auto answers_with = [&](const std::vector<std::string>& stops) {
      std::vector<std::string> answers;
      run::CountProgress progress("answering", "records", 20, 30, false);
      train::answer_all(model->dev, model->decoder, *text.tokenizer, encoder, std::span<const data::Sample>(samples),
                        generate, stops, progress,
                        [&](const data::Sample&, const train::Answer& answer) { answers.push_back(answer.text); });
      return answers;
    };
    const auto whole = answers_with({});
    REQUIRE(whole.size() == 20);
    std::string stop;  // a letter in the middle of an answer
    for (const std::string& answer : whole)
      for (std::size_t i = 1; i + 1 < answer.size() && stop.empty(); ++i)
        if (answer[i] > ' ' && answer[i] < 127) stop = answer.substr(i, 1);
    REQUIRE_FALSE(stop.empty());
    const auto stopped = answers_with({stop});
    for (std::size_t i = 0; i < whole.size(); ++i) {
      CHECK(stopped[i] == whole[i].substr(0, whole[i].find(stop)));
      cut += stopped[i] != whole[i] ? 1 : 0;
    }
  };
  fine_tune(config, options);
  CHECK(cut > 0);
}

TEST_CASE("eval_predict: without answers, or a tokenizer, it is refused before any work") {
  const Quiet quiet;
  Examination exam;
  io::write_file(exam.temp / "eval.jsonl", std::string_view("{\"text\": \"no question\"}\n"));
  CHECK(message_of<FormatError>([&] {
          fine_tune(exam.config("run"));
        }).ends_with("eval.jsonl: eval_predict needs records with an answer; there is none"));
  CHECK_FALSE(io::is_there(exam.temp / "run"));
  const Workshop shop;
  Config config = shop.config();
  config.eval_predict = true;
  CHECK(message_of<ConfigError>([&] { fine_tune(config); }) ==
        "key eval_predict: given true, allowed: false where the model has no tokenizer files");
}

TEST_CASE("eval_predict: an answer ends at the longest sequence that the model computes, which is told once a run") {
  // The longest questions, of three digits, are eval.jsonl:16 to 20.
  const Index longest = std::ssize(byte_tokens(chatml_question("what is 105?"))) + answer_length - 1;
  const Examination exam(20, longrope_model(longest));
  std::vector<std::string> logs;
  for (const int ranks : {1, 2}) {
    CAPTURE(ranks);
    Config config = exam.config(concat("by ", ranks));
    config.step_units = 2;
    std::string lines;  // of the first rank
    run_ranks(ranks, [&](ThreadRank& self) {
      RunOptions options;
      options.log = [&](log::Level level, std::string_view line) {
        if (self.rank() == 0 && level == log::Level::warning) lines += concat(line, "\n");
      };
      D dev(1);
      train::TrainingRun<D, float> run(dev, config, inputs::open_source(config), options, &self);
      run.run();
    });
    CHECK(lines == concat((exam.temp / "eval.jsonl").native(), ":16: the answer and 4 others end at ", longest,
                          " tokens, prompt included: beyond ", longest,
                          " the model's longrope scaling has other factors, which are not supported\n"));
    logs.push_back(numbers_of(config.output_dir));
    CHECK(holds(logs.back(), "eval_samples"));
  }
  CHECK(logs[0] == logs[1]);
}

TEST_CASE("eval_predict: a record or a prompt that is longer than the model computes is refused before any work") {
  const Quiet quiet;
  const Index longest =
      std::ssize(byte_tokens(chatml_question("what is 14?"))) + std::ssize(std::string("nothing")) + 1;
  Examination exam(3, longrope_model(longest));
  Config config = exam.config("run");
  config.eval_predict = false;
  const auto said = [&] {
    const std::string message = message_of<ConfigError>([&] { fine_tune(config); });
    CHECK(io::is_there(config.output_dir) == (message == "nothing was thrown"));
    std::filesystem::remove_all(config.output_dir);
    return message;
  };
  const auto refused = [&](const char* file, const char* what, Index length) {
    return concat((exam.temp / file).native(), what, " of ", length, " tokens, but beyond ", longest,
                  " the model's longrope scaling has other factors, which are not supported; allowed: no more");
  };
  CHECK(said() == "nothing was thrown");
  exam.write_answers({"nothing", "nothing", "nothings"});
  CHECK(said() == refused("eval.jsonl", ":3: a sequence", longest + 1));
  config.cutoff_len = longest;  // in two windows
  CHECK(said() == "nothing was thrown");
  exam.questions[1] = std::string(static_cast<std::size_t>(longest), 'q');
  exam.write_answers({"nothing", "nothing", "nothing"});
  CHECK(said() == "nothing was thrown");
  config.eval_predict = true;
  CHECK(said() == refused("eval.jsonl", ":2: a prompt", std::ssize(byte_tokens(chatml_question(exam.questions[1])))));
  config = exam.config("run");
  std::swap(config.dataset, config.eval_dataset);
  CHECK(said().starts_with((exam.temp / "eval.jsonl").native() + ":2: a sequence of "));
}

TEST_CASE("eval_predict: ranks share the questions out, and have the answers and scores of one process") {
  Quiet quiet;
  const Examination exam;
  io::Json model = io::read_json(exam.temp / "model" / "config.json");
  model["max_position_embeddings"] = 36;  // longer answers are warned of, which is how a test hears of them
  io::write_json(exam.temp / "model" / "config.json", model);
  const auto config_of = [&](const std::string& output) {
    Config config = exam.config(output);
    config.step_units = 3;
    config.gradient_accumulation_steps = 3;
    config.max_steps = 4;
    return config;
  };
  const Config alone = config_of("alone");
  fine_tune(alone);
  for (const int ranks : {2, 3}) {
    CAPTURE(ranks);
    Config config = config_of(concat("by ", ranks));
    run_ranks(ranks, [&](ThreadRank& self) {
      RunOptions options;
      options.log = [](log::Level, std::string_view) {};
      D dev(1);
      train::TrainingRun<D, float> run(dev, config, inputs::open_source(config), options, &self);
      run.run();
    });
    const std::string log = numbers_of(config.output_dir);
    CHECK(log == numbers_of(alone.output_dir));
    CHECK(log.find("eval_samples") != log.npos);
    // One that is stopped while it answers stops all.
    config.output_dir = (exam.temp / concat("stopped ", ranks)).native();
    std::atomic<int> stop = 0;
    run_ranks(ranks, [&](ThreadRank& self) {
      RunOptions options;
      options.log = [&](log::Level, std::string_view line) {
        if (self.rank() == 1 && line.find("eval.jsonl:") != line.npos) stop = SIGTERM;
      };
      if (self.rank() == 1) options.stop = &stop;
      D dev(1);
      train::TrainingRun<D, float> run(dev, config, inputs::open_source(config), options, &self);
      CHECK(run.run().stopped_by == SIGTERM);
    });
    CHECK(run::Checkpoints(config.output_dir).steps().back() == 2);
  }
}

TEST_CASE("eval_predict: a rank that is told to stop has the others leave the rest of their answers") {
  const Quiet quiet;
  const Examination exam(2 * 150);
  Config config = exam.config("run");
  config.step_units = 2;
  std::vector<double> flops;  // of the first rank, where nobody is told, and where the other one is
  for (const bool tells : {false, true}) {
    const std::atomic<int> stop = 1;
    Profile profile({.skipped_steps = 0, .traced_steps = 0, .traces = 0});
    run_ranks(2, [&](ThreadRank& self) {
      RunOptions options;
      options.log = [](log::Level, std::string_view) {};
      if (tells && self.rank() == 1) options.stop = &stop;
      D dev(1);
      const model::Source source = inputs::open_source(config);
      model::Decoder<D, float> decoder(dev, source);
      const train::Prepared run(cpu::Threads(1), config, source, options);
      if (self.rank() == 0) dev.set_profile(&profile);
      const ProfileScope whole(dev, Profile::Kind::step, "answers");
      const auto answers = train::answers_to(run.data.answered(), dev, decoder, run, self);
      CHECK(answers.has_value() == !tells);
    });
    flops.push_back(0);
    for (const Profile::Node& node : profile.nodes()) flops.back() += node.flops;
  }
  CHECK(flops[0] > 0);
  CHECK(flops[1] < 0.6 * flops[0]);  // 64 of 150, and what was begun beside them
}

}  // namespace eval_predict_test
