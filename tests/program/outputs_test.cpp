// What the commands write, when something goes wrong beside them: whole or not at all, and never over what they read.

#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lora/io/files/file.hpp"
#include "lora/io/formats/json.hpp"
#include "support/effort.hpp"
#include "support/message_of.hpp"
#include "support/program.hpp"
#include "support/talking_model.hpp"
#include "support/temp_folder.hpp"

namespace outputs_test {

using namespace lora;

namespace {

std::map<std::string, std::string> files_in(const io::Path& folder) {
  std::map<std::string, std::string> files;
  if (!std::filesystem::exists(folder)) return files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files[entry.path().filename().native()] = entry.is_regular_file() ? io::read_file(entry.path()) : "no file";
  return files;
}

/// A model, its adapter and questions, in a folder that holds nothing else.
struct Subject {
  test::TempFolder temp;

  Subject() {
    test::write_talking_model(temp / "model");
    test::write_talking_adapter(temp / "model", temp / "adapter");
    std::string text;
    for (int i = 0; i < 40; ++i)
      text += io::to_text({{"messages",
                            {{{"role", "user"}, {"content", concat("question ", i)}},
                             {{"role", "assistant"}, {"content", concat("answer ", i)}}}}},
                          -1) +
              "\n";
    io::write_file(temp / "questions.jsonl", std::string_view(text));
  }

  std::vector<std::string> words(const std::string& command, std::vector<std::string> more) const {
    more.insert(more.begin(), {command, "--model_name_or_path=" + (temp / "model").native(),
                               "--adapter_name_or_path=" + (temp / "adapter").native(), "--threads=1"});
    return more;
  }
  std::vector<std::string> merge(const std::string& output, std::vector<std::string> more = {}) const {
    more.push_back("--output_dir=" + (temp / output).native());
    return words("merge", std::move(more));
  }
  std::vector<std::string> generate(const io::Path& output, const io::Path& questions) const {
    return words("generate", {"--template=chatml", "--max_new_tokens=6", "--dataset=" + questions.native(),
                              "--output_file=" + output.native()});
  }
  std::vector<std::string> generate(const io::Path& output) const { return generate(output, temp / "questions.jsonl"); }

  test::Outcome run(const std::vector<std::string>& all) const { return test::run_program(LORA_PROGRAM, all); }

  /// The names in the folder of all.
  std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& [name, content] : files_in(temp.path())) all.insert(name);
    return all;
  }
};

const std::set<std::string> inputs = {"adapter", "model", "questions.jsonl"};

}  // namespace

TEST_CASE("program: merge, killed at any time, leaves the old model whole or the new one") {
  const Subject s;
  REQUIRE(s.run(s.merge("old", {"--dtype=float32", "--max_shard_size=40KB"})).status == 0);
  REQUIRE(s.run(s.merge("new", {"--dtype=bfloat16"})).status == 0);
  const auto before = files_in(s.temp / "old"), after = files_in(s.temp / "new");
  REQUIRE(before != after);
  const auto words = s.merge("out", {"--dtype=bfloat16", "--overwrite_output_dir=true"});
  const int attempts = test::effort(100, 30, "merge: 70 of 100 kills");
  int old = 0, fresh = 0;
  for (int i = 0; i < attempts; ++i) {
    std::filesystem::remove_all(s.temp / "out");
    std::filesystem::copy(s.temp / "old", s.temp / "out");
    test::Process process(LORA_PROGRAM, words, {});
    // From its first file on, a little later each time; every third from its start on.
    if (i % 3 != 0)
      while (process.running() && s.names().size() <= inputs.size() + 3) usleep(100);
    usleep(static_cast<useconds_t>(i * 200));
    process.send(SIGKILL);
    process.wait();
    const auto found = files_in(s.temp / "out");
    CAPTURE(i);
    CHECK((found == before || found == after));
    found == before ? ++old : ++fresh;
  }
  CAPTURE(old);
  CAPTURE(fresh);
  CHECK(old > 0);
  REQUIRE(s.run(words).status == 0);
  CHECK(files_in(s.temp / "out") == after);
  CHECK(s.names() == std::set<std::string>{"adapter", "model", "new", "old", "out", "questions.jsonl"});
}

TEST_CASE("program: merge replaces only what a merge wrote") {
  const Subject s;
  const auto refuse = [&](const std::string& words) {
    const auto before = files_in(s.temp / "out");
    const auto outcome = s.run(s.merge("out", {"--overwrite_output_dir=true"}));
    CAPTURE(outcome.errors);
    CHECK(outcome.status == 2);
    CHECK(test::holds(outcome.errors, words));
    CHECK(files_in(s.temp / "out") == before);
  };
  const auto write = [&](const char* name) { io::write_file(s.temp / "out" / name, std::string_view("mine")); };
  io::create_folders(s.temp / "out");
  REQUIRE(s.run(s.merge("out")).status == 0);  // an empty folder
  write("model_backup.safetensors");
  refuse("it holds model_backup.safetensors, which no merge wrote there");
  std::filesystem::remove(s.temp / "out" / "model_backup.safetensors");
  write("model.safetensors");  // another than was merged
  refuse("it holds model.safetensors, which no merge wrote there");
  std::filesystem::remove_all(s.temp / "out");
  std::filesystem::copy(s.temp / "model", s.temp / "out");  // another base
  refuse("no lora_merge.json of a merge");
  std::filesystem::remove_all(s.temp / "out");
  std::filesystem::copy(s.temp / "adapter", s.temp / "out");
  auto own = s.merge("out", {"--overwrite_output_dir=true"});
  own[2] = "--adapter_name_or_path=" + (s.temp / "out").native();
  CHECK(test::holds(s.run(own).errors, "which is the adapter's own folder"));
  CHECK(files_in(s.temp / "out") == files_in(s.temp / "adapter"));
}

TEST_CASE("program: merge does not replace the folder that its base's links lead to") {
  const Subject s;
  REQUIRE(s.run(s.merge("out")).status == 0);
  const auto before = files_in(s.temp / "out");
  std::filesystem::remove(s.temp / "model" / "model.safetensors");
  std::filesystem::create_symlink(s.temp / "out" / "model.safetensors", s.temp / "model" / "model.safetensors");
  const auto outcome = s.run(s.merge("out", {"--overwrite_output_dir=true"}));
  CAPTURE(outcome.errors);
  CHECK(outcome.status == 2);
  CHECK(test::holds(outcome.errors, (s.temp / "model" / "model.safetensors").native() + " of model_name_or_path"));
  CHECK(files_in(s.temp / "out") == before);
}

// LLVM's OpenMP runtime, of programs that clang builds, ends them itself where a file may not grow.
#if defined(__clang__)

TEST_CASE("program: merge with too little room") {
  test::skipped("program: files that may not grow, under LLVM's OpenMP runtime");
}

#else

TEST_CASE("program: merge with too little room is one line, and leaves nothing") {
  const Subject s;
  for (const char* command : {"merge", "generate"}) {
    CAPTURE(command);
    const bool merges = command == std::string("merge");
    const auto words = merges ? s.merge("out/deeper") : s.generate(s.temp / "answers.jsonl");
    test::Process process(LORA_PROGRAM, words, {.longest_file = 500});
    const std::string errors = process.errors();
    CAPTURE(errors);
    CHECK(process.wait() == 1);
    CHECK(test::holds(errors, "File too large\n"));
    if (merges) {
      CHECK(files_in(s.temp / "out").empty());
      std::filesystem::remove(s.temp / "out");
    }
    CHECK(s.names() == inputs);
  }
}

#endif

TEST_CASE("program: a signal ends merge and generate with nothing half-written") {
  const Subject s;
  std::string many;
  for (int i = 0; i < 40; ++i) many += io::read_file(s.temp / "questions.jsonl");
  io::write_file(s.temp / "questions.jsonl", std::string_view(many));
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    CAPTURE(signal);
    if (signal != SIGTERM && !test::effort(true, false, "generate: three of four signals")) continue;
    test::Process process(LORA_PROGRAM, s.generate(s.temp / "answers.jsonl"), {});
    while (process.running() && s.names() == inputs) usleep(1000);
    REQUIRE(process.running());
    process.send(signal);
    CHECK(process.wait() == 128 + signal);
    CHECK(s.names() == inputs);
  }
  int ended = 0;
  // A little later each time, and on a busy machine until one was met at work.
  const int times = test::effort(10, 4, "merge: six of ten signals");
  for (int i = 0; i < times || (ended == 0 && i < 500); ++i) {
    test::Process process(LORA_PROGRAM, s.merge("out"), {});
    while (process.running() && s.names() == inputs) usleep(100);
    usleep(static_cast<useconds_t>(i % times * 3000 / times));
    process.send(SIGTERM);
    const int status = process.wait();
    if (status == 128 + SIGTERM) ++ended;
    for (const auto& name : s.names()) CHECK((inputs.contains(name) || name == "out"));
    std::filesystem::remove_all(s.temp / "out");
  }
  CHECK(ended > 0);
}

TEST_CASE("program: generate writes over nothing that it reads, and through no link") {
  const Subject s;
  const io::Path questions = s.temp / "questions.jsonl", weights = s.temp / "model" / "model.safetensors";
  const auto before = io::read_file(questions), model = io::read_file(weights);
  const auto refuse = [&](const io::Path& output, int status, const std::string& why) {
    const auto outcome = s.run(s.generate(output));
    CAPTURE(outcome.errors);
    CHECK(outcome.status == status);
    CHECK(test::holds(outcome.errors, why));
    CHECK(io::read_file(questions) == before);
    CHECK(io::read_file(weights) == model);
  };
  refuse(questions, 2, "is the same file as " + questions.native() + " of dataset");
  std::filesystem::create_hard_link(questions, s.temp / "other name");
  refuse(s.temp / "other name", 2, "of dataset");
  refuse(weights, 2, "of model_name_or_path");
  refuse(s.temp / "adapter" / "adapter_config.json", 2, "of adapter_name_or_path");
  io::write_file(s.temp / "keys.json", std::string_view("{\"max_new_tokens\": 2}"));
  auto words = s.generate(s.temp / "keys.json");
  words.push_back("--config=" + (s.temp / "keys.json").native());
  const auto of_config = s.run(words);
  CHECK(of_config.status == 2);
  CHECK(of_config.errors == concat("error: key output_file: ", (s.temp / "keys.json").native(), " is the same file as ",
                                   (s.temp / "keys.json").native(), " of config; allowed: another\n"));
  io::write_file(s.temp / "victim", std::string_view("kept"));
  std::filesystem::create_symlink(s.temp / "victim", s.temp / "link.jsonl");
  refuse(s.temp / "link.jsonl", 1, "it is a link, which is not followed");
  for (const char* suffix : {".partial", ".lora-partial"})
    std::filesystem::create_symlink(s.temp / "victim", s.temp / concat("o.jsonl", suffix));
  CHECK(s.run(s.generate(s.temp / "o.jsonl")).status == 0);
  CHECK(io::read_file(s.temp / "victim") == "kept");
}

TEST_CASE("program: two that generate into one file leave one of the two results, whole") {
  const Subject s;
  const io::Path other = s.temp / "other.jsonl", file = s.temp / "answers.jsonl";
  io::write_file(other, std::string_view("{\"messages\":[{\"role\":\"user\",\"content\":\"another\"}]}\n"));
  const auto result = [&](const io::Path& questions) {
    REQUIRE(s.run(s.generate(file, questions)).status == 0);
    return io::read_file(file);
  };
  const auto one = result(s.temp / "questions.jsonl"), two = result(other);
  test::Process a(LORA_PROGRAM, s.generate(file), {}), b(LORA_PROGRAM, s.generate(file, other), {});
  // One that begins in the very moment of the other may be refused, and then leaves the file to it.
  int written = 0;
  for (test::Process* process : {&a, &b}) {
    const std::string errors = process->errors();
    const int status = process->wait();
    written += status == 0;
    CAPTURE(errors);
    CHECK((status == 0 || (status == 1 && test::holds(errors, "error: "))));
  }
  CHECK(written > 0);
  const auto text = io::read_file(file);
  CHECK((text == one || text == two));
}

TEST_CASE("program: generate for a reader who has gone is an error") {
  const Subject s;
  std::string line = "exec 3> >(true); wait $!; " + test::shell_word(LORA_PROGRAM);
  for (const auto& word : s.words("generate", {"--template=chatml", "--max_new_tokens=2",
                                               "--dataset=" + (s.temp / "questions.jsonl").native()}))
    line += " " + test::shell_word(word);
  const auto outcome = test::run_program("bash", {"-c", line + " >&3"});
  CHECK(outcome.status == 1);
  CHECK(test::holds(outcome.errors, "error: cannot write standard output: Broken pipe"));
}

TEST_CASE("program: eval writes over its own results alone, and leaves nothing stale") {
  const Subject s;
  const auto words = [&](const std::string& dataset, bool predicts) {
    auto all = s.words("eval", {"--template=chatml", "--max_samples=2", "--dataset=" + (s.temp / dataset).native(),
                                "--output_dir=" + (s.temp / "out").native()});
    if (predicts) all.insert(all.end(), {"--predict", "--max_new_tokens=2"});
    return all;
  };
  const auto refuse = [&](const std::string& dataset, const std::string& why) {
    const auto before = files_in(s.temp / "out");
    const auto outcome = s.run(words(dataset, true));
    CAPTURE(outcome.errors);
    CHECK(outcome.status == 2);
    CHECK(test::holds(outcome.errors, why));
    CHECK(files_in(s.temp / "out") == before);
  };
  io::create_folders(s.temp / "out");
  std::filesystem::copy(s.temp / "questions.jsonl", s.temp / "out" / "predictions.jsonl");
  refuse("out/predictions.jsonl", "is the same file as ");
  refuse("questions.jsonl", "which no evaluation wrote");
  // An evaluation elsewhere says nothing of this folder, and a file that tells of none is not an evaluation's.
  const io::Path results = s.temp / "out" / "evaluation_results.json";
  for (const char* other : {"[]", "{\"loss\": 1, \"perplexity\": 2}", "{"}) {
    io::write_file(results, std::string_view(other));
    refuse("questions.jsonl", "which no evaluation wrote");
  }
  std::filesystem::remove(results);
  std::filesystem::remove(s.temp / "out" / "predictions.jsonl");
  CHECK(s.run(words("questions.jsonl", true)).status == 0);
  CHECK(files_in(s.temp / "out").size() == 4);  // with the events
  CHECK(s.run(words("questions.jsonl", false)).status == 0);
  CHECK(files_in(s.temp / "out").size() == 3);
}

}  // namespace outputs_test
