// The template that a model was trained with, and the end that its answers have learned, go wherever the model goes.

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lora/io/files/file.hpp"
#include "lora/io/formats/json.hpp"
#include "support/message_of.hpp"
#include "support/program.hpp"
#include "support/talking_model.hpp"
#include "support/temp_folder.hpp"

namespace trained_template_test {

using namespace lora;
using test::holds;

namespace {

std::string published(const std::string& name) {
  return io::read_file(std::string(LORA_FIXTURES "/templates/") + name + ".jinja");
}

/// A model that stops at the id 5 only, with SmolLM2's template, and conversations.
struct Subject {
  test::TempFolder temp;
  io::Path base = temp / "base", data = temp / "talk.jsonl";

  Subject() {
    test::write_talking_model(base);
    io::Json config = io::read_json(base / "config.json");
    config["eos_token_id"] = 5;
    io::write_json(base / "config.json", config);
    io::write_json(base / "tokenizer_config.json", {{"eos_token", "q"}, {"chat_template", published("smollm2")}});
    io::write_file(data, std::string_view(R"({"instruction": "hello", "output": "good day"}
{"instruction": "count", "output": "one two"}
)"));
  }

  test::Outcome run(const char* command, const io::Path& model, const io::Path& adapter,
                    std::vector<std::string> more) const {
    more.insert(more.begin(), {command, "--model_name_or_path=" + model.native(), "--threads=1"});
    if (!adapter.empty()) more.push_back("--adapter_name_or_path=" + adapter.native());
    auto outcome = test::run_program(LORA_PROGRAM, more);
    CAPTURE(outcome.errors);
    REQUIRE(outcome.status == 0);
    return outcome;
  }
  /// What it says on standard error.
  std::string train(const io::Path& output, const io::Path& adapter, std::vector<std::string> more) const {
    more.insert(more.end(), {"--dtype=float32", "--dataset=" + data.native(), "--output_dir=" + output.native(),
                             "--max_steps=2", "--save_steps=1"});
    return run("train", base, adapter, more).errors;
  }
  /// The results of an evaluation; `errors` gets what it says on standard error.
  io::Json eval(const io::Path& model, const io::Path& adapter, std::vector<std::string> more = {},
                std::string* errors = nullptr) const {
    more.insert(more.end(),
                {"--dtype=float32", "--dataset=" + data.native(), "--output_dir=" + (temp / "evaluated").native()});
    const auto outcome = run("eval", model, adapter, more);
    if (errors != nullptr) *errors = outcome.errors;
    return io::parse_json(outcome.output, "results");
  }
  /// What it says on standard error.
  std::string merge(const io::Path& adapter, const io::Path& output) const {
    return run("merge", base, adapter, {"--output_dir=" + output.native()}).errors;
  }
  void expect_as_base(const io::Path& folder, std::vector<const char*> names) const {
    for (const char* name : names) {
      CAPTURE(name);
      CHECK(io::read_file(folder / name) == io::read_file(base / name));
    }
    CHECK_FALSE(std::filesystem::exists(folder / "chat_template.jinja"));
  }
};

/// A folder whose conversations are ChatML's, and end with its end.
void expect_chatml(const io::Path& folder) {
  CAPTURE(folder.native());
  CHECK(io::read_file(folder / "chat_template.jinja") == published("chatml"));
  CHECK(io::read_json(folder / "tokenizer_config.json") ==
        io::Json{{"eos_token", "<|im_end|>"}, {"chat_template", published("chatml")}});
}
void expect_stops(const io::Path& folder) {
  CAPTURE(folder.native());
  for (const char* name : {"config.json", "generation_config.json"})
    CHECK(io::read_json(folder / name).at("eos_token_id") == io::Json{257, 5});
}

}  // namespace

TEST_CASE("program: an adapter's template goes along: eval, generate, merge and a later training take it") {
  const Subject s;
  const io::Path run = s.temp / "run", adapter = run / "final_model", whole = s.temp / "whole";
  CHECK_FALSE(holds(s.train(run, {}, {"--template=chatml"}), "Warning"));
  expect_chatml(adapter);
  expect_chatml(run / "checkpoints" / "checkpoint-1");
  const std::string card = io::read_file(adapter / "README.md");
  CHECK(holds(card, "\n| chat template | chatml |\n"));
  CHECK(holds(card, "eos_token_id=[257, 5]"));

  std::string errors;
  const io::Json asked = s.eval(s.base, adapter, {"--template=chatml"}, &errors);
  CHECK_FALSE(holds(errors, "Warning"));
  const io::Json found = s.eval(s.base, adapter, {}, &errors);
  CHECK_FALSE(holds(errors, "Warning"));
  CHECK(found.at("template") == "chatml");
  CHECK(found.at("loss") == asked.at("loss"));
  CHECK(holds(io::read_file(s.temp / "evaluated" / "evaluation_report.md"), "\n- template: chatml\n"));
  const io::Json other = s.eval(s.base, adapter, {"--template=smollm2"}, &errors);
  CHECK(holds(errors, "Warning: key template: given smollm2, but the adapter " + adapter.native() +
                          " was trained with chatml"));
  CHECK(other.at("template") == "smollm2");
  CHECK(other.at("loss") != asked.at("loss"));
  CHECK(s.eval(s.base, {}).at("template") == "smollm2");

  const std::vector<std::string> prompt = {"--dtype=float32", "--prompt=hello", "--max_new_tokens=9"};
  test::Listener listener(s.base, adapter);
  CHECK(s.run("generate", s.base, adapter, prompt).output == listener.answer("hello", 9, {5, 257}) + "\n");

  const std::string merged = s.merge(adapter, whole);
  CHECK(holds(merged, "its chat template is the adapter's"));
  CHECK(holds(merged, "its answers end with <|im_end|>, as the adapter's do: generation_config.json says so"));
  expect_chatml(whole);
  expect_stops(whole);
  CHECK(s.eval(whole, {}).at("template") == "chatml");
  CHECK(s.run("generate", whole, {}, prompt).output == listener.answer("hello", 9, {5, 257}) + "\n");

  CHECK_FALSE(holds(s.train(s.temp / "later", adapter, {}), "Warning"));
  expect_chatml(s.temp / "later" / "final_model");
  CHECK(holds(s.train(s.temp / "turned", adapter, {"--template=smollm2"}), "was trained with chatml"));
  CHECK(io::read_json(s.temp / "turned" / "run_config.json").at("template") == "smollm2");
}

TEST_CASE("program: with an adapter that was trained on texts an answer ends where the merged model's does") {
  const Subject s;
  io::write_file(s.data, std::string_view("{\"text\": \"hello\"}\n{\"text\": \"good day\"}\n"));
  const io::Path adapter = s.temp / "run" / "final_model", whole = s.temp / "whole";
  s.train(s.temp / "run", {}, {});
  io::write_file(s.temp / "prompt.jsonl", std::string_view("{\"text\": \"hello\"}\n"));
  const auto answer = [&](const io::Path& model, const io::Path& with) {
    const auto outcome =
        s.run("generate", model, with,
              {"--dtype=float32", "--dataset=" + (s.temp / "prompt.jsonl").native(), "--max_new_tokens=12"});
    return io::parse_json(outcome.output, "answer").at("predict").get<std::string>();
  };
  const std::string open = answer(s.base, adapter);
  REQUIRE(open.size() > 6);
  // An end as if training had taught it: a letter of that answer.
  const std::string end = open.substr(5, 1);
  io::write_json(adapter / "tokenizer_config.json", {{"eos_token", end}});
  s.merge(adapter, whole);
  CHECK(answer(whole, {}) == open.substr(0, open.find(end)));
  CHECK(answer(s.base, adapter) == open.substr(0, open.find(end)));
}

TEST_CASE("program: a model that is trained in full has the template and the end of its training, checkpoints too") {
  const Subject s;
  const io::Path run = s.temp / "run", model = run / "final_model", checkpoint = run / "checkpoints" / "checkpoint-1";
  s.train(run, {}, {"--template=chatml", "--finetuning_type=full"});
  for (const io::Path& folder : {model, checkpoint}) {
    expect_chatml(folder);
    expect_stops(folder);
    CHECK(s.eval(folder, {}).at("template") == "chatml");
  }
  CHECK(holds(io::read_file(model / "README.md"), "\n| chat template | chatml |\n"));
}

TEST_CASE("program: with the model's own template and end nothing of its files changes") {
  const Subject s;
  io::write_json(s.base / "generation_config.json", {{"eos_token_id", {257, 5}}, {"top_k", 20}});
  const std::vector<const char*> files = {"tokenizer.json", "tokenizer_config.json"};
  auto all = files;
  all.push_back("generation_config.json");
  for (const std::vector<std::string>& keys : {std::vector<std::string>{}, {"--template=smollm2"}}) {
    const io::Path run = s.temp / "run", full = s.temp / "full", whole = s.temp / "whole";
    s.train(run, {}, keys);
    s.expect_as_base(run / "final_model", files);
    CHECK_FALSE(holds(io::read_file(run / "final_model" / "README.md"), "eos_token_id"));
    const std::string merged = s.merge(run / "final_model", whole);
    CHECK_FALSE(holds(merged, "its answers end with"));
    CHECK_FALSE(holds(merged, "its chat template is"));
    s.expect_as_base(whole, all);
    CHECK(io::read_json(whole / "config.json").at("eos_token_id") == 5);
    auto more = keys;
    more.push_back("--finetuning_type=full");
    s.train(full, {}, more);
    s.expect_as_base(full / "final_model", all);
    for (const io::Path& folder : {run, full, whole}) std::filesystem::remove_all(folder);
  }
}

TEST_CASE("program: a base without a template has one after training, alpaca as well") {
  const Subject s;
  io::write_json(s.base / "tokenizer_config.json", {{"eos_token", "<|im_end|>"}});
  for (const std::string name : {"qwen3", "alpaca"}) {
    CAPTURE(name);
    const io::Path run = s.temp / name, whole = s.temp / (name + " whole");
    s.train(run, {}, {"--template=" + name});
    CHECK(io::read_file(run / "final_model" / "chat_template.jinja") == published(name));
    CHECK(io::read_json(run / "final_model" / "tokenizer_config.json") == io::Json{{"eos_token", "<|im_end|>"}});
    CHECK(s.eval(s.base, run / "final_model").at("template") == name);
    s.merge(run / "final_model", whole);
    expect_stops(whole);
    CHECK(s.eval(whole, {}).at("template") == name);
  }
}

TEST_CASE("program: a marker that is no single token ends every command before anything is written") {
  const Subject s;
  io::Json tokenizer = io::read_json(s.base / "tokenizer.json");
  tokenizer["added_tokens"].erase(1);
  io::write_json(s.base / "tokenizer.json", tokenizer);
  const auto expect = [&](std::vector<std::string> words) {
    words.insert(words.begin() + 1, {"--model_name_or_path=" + s.base.native(), "--template=chatml"});
    const auto outcome = test::run_program(LORA_PROGRAM, words);
    CHECK(outcome.status == 1);
    CHECK(outcome.output.empty());
    CHECK(
        holds(outcome.errors, (s.base / "tokenizer.json").native() +
                                  ": the template chatml writes <|im_end|>, which the tokenizer cuts into 10 tokens"));
  };
  const std::string dataset = "--dataset=" + s.data.native(), output = "--output_dir=" + (s.temp / "out").native();
  expect({"train", dataset, output});
  expect({"eval", dataset, output});
  expect({"generate", "--prompt=hello"});
  expect({"tokenize", "--file=" + s.data.native()});
  CHECK_FALSE(std::filesystem::exists(s.temp / "out"));
}

TEST_CASE("program: an edited template is interpreted in all that is done with a model") {
  const Subject s;
  std::string edited = published("qwen2_5");
  const std::string was = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
  for (auto at = edited.find(was); at != edited.npos; at = edited.find(was))
    edited.replace(at, was.size(), "Be a bird.");
  io::write_json(s.base / "tokenizer_config.json", {{"eos_token", "q"}, {"chat_template", edited}});
  // The published one, with records that say the same.
  const io::Path told = s.temp / "told.jsonl", talk = s.temp / "input";
  io::write_file(s.data, std::string_view(R"({"instruction": "hello", "output": "good day"}
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]}
)"));
  io::write_file(told, std::string_view(R"({"instruction": "hello", "output": "good day", "system": "Be a bird."}
{"messages": [{"role": "system", "content": "Be a bird."}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]}
)"));
  const auto with = [&](const char* command, const io::Path& adapter, const io::Path& data,
                        std::vector<std::string> more) {
    more.push_back("--dataset=" + data.native());
    return s.run(command, s.base, adapter, more);
  };
  const std::string known = "--template=qwen2_5";
  const auto tokens = [&](const io::Path& file, std::vector<std::string> more) {
    more.insert(more.begin(), {"tokenize", "--model_name_or_path=" + s.base.native(), "--file=" + file.native()});
    const auto outcome = test::run_program(LORA_PROGRAM, more);
    CHECK(outcome.status == 0);
    return outcome.output;
  };
  CHECK(tokens(s.data, {}) == tokens(told, {known}));

  const io::Path run = s.temp / "run", adapter = run / "final_model";
  CHECK(holds(s.train(run, {}, {}), "the chat template is none of the known ones: its text is interpreted (own_"));
  CHECK(io::read_json(run / "run_config.json").at("template") == "auto");
  const auto loss = [&](const io::Path& data, std::vector<std::string> more) {
    more.insert(more.end(), {"--dtype=float32", "--output_dir=" + (s.temp / "evaluated").native()});
    return io::parse_json(with("eval", adapter, data, more).output, "results").at("loss").get<double>();
  };
  CHECK(loss(s.data, {}) == loss(told, {known}));
  const auto answers = [&](const io::Path& data, std::vector<std::string> more) {
    more.insert(more.end(), {"--dtype=float32", "--max_new_tokens=9"});
    return with("generate", adapter, data, more).output;
  };
  CHECK(answers(s.data, {}) == answers(told, {known}));
  io::write_file(talk, std::string_view("hello\nc\n"));
  const auto chat = [&](std::vector<std::string> more) {
    more.insert(more.begin(),
                {"chat", "--model_name_or_path=" + s.base.native(), "--adapter_name_or_path=" + adapter.native(),
                 "--dtype=float32", "--threads=1", "--max_new_tokens=9"});
    const auto outcome = test::run_program(LORA_PROGRAM, more, {}, talk.native());
    CHECK(outcome.status == 0);
    return outcome.output;
  };
  CHECK(chat({}) == chat({known, "--system=Be a bird."}));

  // A run goes on with this text alone, and another model takes the text from the adapter.
  const std::vector<std::string> resume = {"--resume_from_checkpoint=" +
                                           (run / "checkpoints" / "checkpoint-1").native()};
  s.train(s.temp / "resumed", {}, resume);
  CHECK(io::read_file(s.temp / "resumed" / "final_model" / "adapter_model.safetensors") ==
        io::read_file(adapter / "adapter_model.safetensors"));
  io::write_json(s.base / "tokenizer_config.json", {{"eos_token", "q"}, {"chat_template", edited + " "}});
  auto words = resume;
  words.insert(words.begin(), {"train", "--model_name_or_path=" + s.base.native(), "--threads=1", "--dtype=float32",
                               "--dataset=" + s.data.native(), "--output_dir=" + (s.temp / "refused").native(),
                               "--max_steps=2", "--save_steps=1"});
  const auto refused = test::run_program(LORA_PROGRAM, words);
  CHECK(refused.status != 0);
  CHECK(holds(refused.errors, "template"));
  CHECK(holds(refused.errors, "own_"));
  const io::Path later = s.temp / "later";
  s.train(later, {}, {});
  io::write_json(s.base / "tokenizer_config.json", {{"eos_token", "q"}, {"chat_template", published("smollm2")}});
  CHECK(loss(s.data, {}) == loss(told, {known}));
  s.train(s.temp / "last", later / "final_model", {});
  CHECK(io::read_file(s.temp / "last" / "final_model" / "chat_template.jinja") == edited + " ");

  // What is not supported is told of before anything is read of the data.
  io::write_json(s.base / "tokenizer_config.json", {{"eos_token", "q"}, {"chat_template", "{% include 'x' %}"}});
  words.resize(words.size() - 1);
  const auto include = test::run_program(LORA_PROGRAM, words);
  CHECK(include.status == 2);
  CHECK(holds(include.errors, "the model's chat template:1:4: found the block include; "));
  CHECK(holds(include.errors, "; set template to one of qwen2, "));
}

}  // namespace trained_template_test
