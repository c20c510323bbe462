// The command train to its end, and the pages of --preview: what is written for people and for other tools.

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

namespace train_files_test {

using namespace lora;

namespace {

/// A model and three conversations; the last one has two answers.
struct Subject {
  test::TempFolder temp;
  io::Path data = temp / "some talk.jsonl";

  Subject() {
    test::write_talking_model(temp / "model");
    io::write_file(data, std::string_view(R"({"instruction": "hello", "output": "good day"}
{"instruction": "count", "input": "to two", "output": "one two", "system": "Be brief."}
{"instruction": "and now", "output": "goodbye", "history": [["first", "second"]]}
)"));
  }

  std::vector<std::string> words(const char* command, std::vector<std::string> more) const {
    more.insert(more.begin(), {command, "--model_name_or_path=" + (temp / "model").native(), "--template=chatml",
                               "--dtype=float32", "--threads=1", "--dataset=" + data.native()});
    return more;
  }
};

}  // namespace

TEST_CASE("program: train writes the command that repeats it, and a model that answers as it was trained") {
  const Subject s;
  const io::Path run = s.temp / "it's a run";
  const auto words = s.words("train", {"--output_dir", run.native(), "--max_steps=12", "--logging_steps=1",
                                       "--learning_rate=0.05", "--lora_rank=4", "--seed=7"});
  const auto outcome = test::run_program(LORA_PROGRAM, words);
  CAPTURE(outcome.errors);
  REQUIRE(outcome.status == 0);
  CHECK(outcome.output.empty());

  // A shell must read the words of train_command.txt back.
  io::Path script = s.temp / "print_words.sh";
  io::write_file(script, concat("set -- ", io::read_file(run / "train_command.txt"), "printf '%s\\n' \"$@\"\n"));
  std::string expected = concat(LORA_PROGRAM, "\n");
  for (const auto& word : words) expected += word + "\n";
  const std::vector<std::string> arguments = {script.native()};
  CHECK(test::run_program("sh", arguments).output == expected);

  const io::Json keys = io::read_json(run / "run_config.json");
  CHECK(keys.at("seed") == 7);
  CHECK(keys.at("lora_rank") == 4);
  CHECK(keys.at("learning_rate") == 0.05);
  CHECK(keys.at("template") == "chatml");
  CHECK(test::holds(io::read_file(run / "environment_info.txt"), "device: cpu, 1 thread"));
  const auto log = test::json_lines(io::read_file(run / "trainer_log.jsonl"));
  CHECK(log.size() == 12);
  CHECK(log.back().at("loss").get<double>() < 0.9 * log.front().at("loss").get<double>());
  const io::Json metrics = io::read_json(run / "training_metrics.json");
  CHECK(metrics.at("steps") == 12);
  CHECK(metrics.at("train_loss") == log.back().at("loss"));
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    CHECK(io::read_file(run / "final_model" / file) == io::read_file(s.temp / "model" / file));
  CHECK(std::filesystem::is_regular_file(run / "tensorboard" / "events.out.tfevents.lora"));

  // As whole forward passes have it, with what was trained and without.
  test::Listener trained(s.temp / "model", run / "final_model"), base(s.temp / "model");
  const std::string answer = trained.answer("hello", 8);
  CHECK(answer != base.answer("hello", 8));
  const auto said = test::run_program(
      LORA_PROGRAM, {"generate", "--model_name_or_path=" + (s.temp / "model").native(), "--template=chatml",
                     "--dtype=float32", "--threads=1", "--adapter_name_or_path=" + (run / "final_model").native(),
                     "--prompt=hello", "--max_new_tokens=8"});
  CHECK(said.output == answer + "\n");
}

TEST_CASE("program: train writes its lines to standard output for report_to jsonl, and event files where it says so") {
  const Subject s;
  const auto run = [&](const char* name, const char* report_to, const std::string& output = {}) {
    const auto words = s.words("train", {"--output_dir=" + (s.temp / name).native(), "--max_steps=3", "--val_size=1",
                                         "--logging_steps=1", std::string("--report_to=") + report_to});
    return test::run_program(LORA_PROGRAM, words, output);
  };
  const auto has_events = [&](const char* name) { return std::filesystem::exists(s.temp / name / "tensorboard"); };
  const auto lines = [&](const char* name) { return io::read_file(s.temp / name / "trainer_log.jsonl"); };
  const auto piped = run("piped", "jsonl");
  CAPTURE(piped.errors);
  REQUIRE(piped.status == 0);
  CHECK(piped.output == lines("piped"));
  CHECK(test::json_lines(piped.output).size() == 4);
  CHECK_FALSE(has_events("piped"));
  const auto both = run("both", "tensorboard,jsonl");
  CHECK(both.output == lines("both"));
  CHECK(has_events("both"));
  const auto none = run("none", "none");
  CHECK(none.status == 0);
  CHECK(none.output.empty());
  CHECK_FALSE(has_events("none"));
  // A full disk behind it ends no run; nothing begins where there is no standard output.
  const auto full = run("full", "jsonl", "/dev/full");
  CHECK(full.status == 0);
  CHECK(test::holds(full.errors, "nobody reads standard output any more (No space left on device)"));
  CHECK(test::json_lines(lines("full")).size() == 4);
  const auto closed = test::run_program(
      concat("sh -c 'exec \"$@\" >&-' sh ", LORA_PROGRAM),
      s.words("train", {"--output_dir=" + (s.temp / "closed").native(), "--max_steps=3", "--report_to=jsonl"}));
  CHECK(closed.status == 1);
  CHECK(test::holds(closed.errors, "key report_to: given jsonl, but standard output is closed"));
  CHECK_FALSE(std::filesystem::exists(s.temp / "closed" / "trainer_log.jsonl"));
}

TEST_CASE("program: train repeats itself to the byte from run_config.json") {
  const Subject s;
  const io::Path first = s.temp / "first", second = s.temp / "second";
  const auto outcome = test::run_program(
      LORA_PROGRAM, s.words("train", {"--output_dir=" + first.native(), "--max_steps=3", "--lora_dropout=0.25",
                                      "--lora_alpha=2.5", "--lora_target=q_proj,up_proj", "--logging_steps=1",
                                      "--warmup_ratio=0.4", "--adam_beta2=0.9", "--val_size=1"}));
  CAPTURE(outcome.errors);
  REQUIRE(outcome.status == 0);
  const auto again = test::run_program(
      LORA_PROGRAM, {"train", "--config=" + (first / "run_config.json").native(), "--output_dir=" + second.native()});
  CAPTURE(again.errors);
  REQUIRE(again.status == 0);
  CHECK(io::read_file(first / "final_model" / "adapter_model.safetensors") ==
        io::read_file(second / "final_model" / "adapter_model.safetensors"));
}

TEST_CASE("program: a preview shows records as training sees them, and nothing else is done") {
  const Subject s;
  const std::string where = s.data.native();
  const std::string first = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n",
                    second =
                        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\ncount\nto two<|im_end|>\n"
                        "<|im_start|>assistant\n",
                    third = "<|im_start|>user\nfirst<|im_end|>\n<|im_start|>assistant\n",
                    fourth = "\n<|im_start|>user\nand now<|im_end|>\n<|im_start|>assistant\n";
  const auto tokens = [](const std::string& text) { return test::byte_tokens(text).size(); };
  const auto page = [&](int line, std::size_t all, std::size_t labeled, const std::string& text) {
    return concat("--- ", where, ":", line, ": ", all, " tokens, ", labeled, " labeled\n", text, "\n");
  };
  const std::string pages =
      page(1, tokens(first) + 9, 9, first + "⟦good day<|im_end|>⟧") +
      page(2, tokens(second) + 8, 8, second + "⟦one two<|im_end|>⟧") +
      page(3, tokens(third + fourth) + 15, 15, third + "⟦second<|im_end|>⟧" + fourth + "⟦goodbye<|im_end|>⟧");
  for (const char* command : {"train", "eval"}) {
    const io::Path run = s.temp / "run";
    const auto preview = [&](std::vector<std::string> more) {
      more.push_back("--output_dir=" + run.native());
      const auto outcome = test::run_program(LORA_PROGRAM, s.words(command, std::move(more)));
      CAPTURE(outcome.errors);
      CHECK(outcome.status == 0);
      CHECK_FALSE(std::filesystem::exists(run));
      return outcome.output;
    };
    CHECK(preview({"--preview=9"}) == pages);
    CHECK(preview({"--preview=1"}) == pages.substr(0, pages.find("---", 3)));
    CHECK(preview({"--preview=2", "--max_samples=1"}) == pages.substr(0, pages.find("---", 3)));
    const std::size_t cut = tokens(first) + 6;
    CHECK(preview({"--preview=1", concat("--cutoff_len=", cut)}) ==
          concat("--- ", where, ":1: ", cut, " tokens, 6 labeled, cut\n", first, "⟦good d⟧\n"));
  }
}

TEST_CASE("program: standard output that takes nothing is an error, whatever was to be written there") {
  const Subject s;
  const std::string model = "--model_name_or_path=" + (s.temp / "model").native();
  const std::vector<std::vector<std::string>> commands = {
      {"--version"},
      {"train", "--help"},
      {"tokenize", model, "--text=hello"},
      {"generate", model, "--template=chatml", "--prompt=hello", "--max_new_tokens=2"},
      s.words("eval", {"--output_dir=" + (s.temp / "out").native()}),
      s.words("train", {"--preview=1", "--output_dir=" + (s.temp / "out").native()})};
  for (const auto& words : commands) {
    CAPTURE(words.front());
    const auto outcome = test::run_program(LORA_PROGRAM, words, "/dev/full");
    CHECK(outcome.status == 1);
    CHECK(test::holds(outcome.errors, "error: cannot write standard output"));
  }
}

}  // namespace train_files_test
