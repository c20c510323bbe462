// What a command that was killed has left, and two at once in one place.

#include <doctest/doctest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lora/io/files/file.hpp"
#include "lora/io/formats/json.hpp"
#include "support/message_of.hpp"
#include "support/program.hpp"
#include "support/random_model.hpp"
#include "support/talking_model.hpp"
#include "support/temp_folder.hpp"

namespace killed_test {

using namespace lora;

namespace {

struct Subject {
  test::TempFolder temp;

  Subject() {
    test::write_talking_model(temp / "model");
    std::string text;
    for (int i = 0; i < 40; ++i) text += concat("{\"prompt\": \"question ", i, "\", \"completion\": \"yes\"}\n");
    io::write_file(temp / "data.jsonl", std::string_view(text));
  }

  std::vector<std::string> words(const std::string& command, const std::string& output) const {
    return {command,
            "--threads=1",
            "--template=chatml",
            "--model_name_or_path=" + (temp / "model").native(),
            "--dataset=" + (temp / "data.jsonl").native(),
            output};
  }
  std::vector<std::string> generate(const std::string& tokens) const {
    auto all = words("generate", "--output_file=" + (temp / "out.jsonl").native());
    all.push_back("--max_new_tokens=" + tokens);
    return all;
  }
  std::vector<std::string> eval() const { return words("eval", "--output_dir=" + (temp / "eval").native()); }
};

std::vector<io::Path> partials(const io::Path& folder) {
  std::vector<io::Path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().native().ends_with(".lora-partial")) found.push_back(entry.path());
  return found;
}

void leave(const io::Path& path) { io::write_file(path, std::string_view("half a")); }

}  // namespace

TEST_CASE("program: what a killed generate left goes with the next one of the same output, and only then") {
  const Subject s;
  const io::Path other = io::temporary_name(s.temp / "another.jsonl", io::Temporary::partial);
  leave(other);
  leave(s.temp / "out.jsonl.0123456789abcdef01234567.lora-partial");  // not sealed: somebody's own name
  {
    test::Process first(LORA_PROGRAM, s.generate("100000"), {});
    for (int i = 0; i < 6000 && first.running() && partials(s.temp.path()).size() < 3; ++i) usleep(5000);
    REQUIRE(partials(s.temp.path()).size() == 3);
    const auto second = test::run_program(LORA_PROGRAM, s.generate("2"));
    CAPTURE(second.errors);
    CHECK(second.status == 0);
    CHECK(partials(s.temp.path()).size() == 3);  // the first is still at it
    CHECK(first.running());
  }  // killed
  CHECK(partials(s.temp.path()).size() == 3);
  CHECK(test::run_program(LORA_PROGRAM, s.generate("2")).status == 0);
  CHECK(partials(s.temp.path()).size() == 2);
  CHECK(std::filesystem::exists(other));
}

TEST_CASE("program: a merge that is at work keeps its folder while another of the same output begins and ends") {
  const Subject s;
  test::RandomModel shape;
  shape.vocabulary = 40'000;  // enough to be seen at work
  shape.hidden = 64;
  test::write_random_model(s.temp / "base", shape);
  test::write_talking_adapter(s.temp / "base", s.temp / "adapter");
  const std::vector<std::string> words = {"merge", "--threads=1", "--model_name_or_path=" + (s.temp / "base").native(),
                                          "--adapter_name_or_path=" + (s.temp / "adapter").native(),
                                          "--output_dir=" + (s.temp / "merged").native()};
  /// The folder that is being written, once its first tensors are there: then its lock is held.
  const auto begun = [&] {
    io::Path found;
    for (const auto& entry : std::filesystem::directory_iterator(s.temp.path()))
      if (entry.path().native().ends_with(".lora-writing") && !std::filesystem::is_empty(entry)) found = entry.path();
    return found;
  };
  bool stopped = false;
  for (int attempt = 0; attempt < 500 && !stopped; ++attempt) {
    std::filesystem::remove_all(s.temp / "merged");
    test::Process first(LORA_PROGRAM, words, {});
    while (first.running() && begun().empty()) usleep(200);
    first.send(SIGSTOP);
    const io::Path folder = begun();
    if (!folder.empty() && !std::filesystem::exists(s.temp / "merged")) {
      stopped = true;
      const auto second = test::run_program(LORA_PROGRAM, words);
      CAPTURE(second.errors);
      CHECK(second.status == 0);
      CHECK(std::filesystem::exists(s.temp / "merged" / "model.safetensors"));
      CHECK(std::filesystem::exists(folder));
      first.send(SIGCONT);
      CHECK(test::holds(first.errors(), "a model has come there meanwhile"));
      CHECK(first.wait() == 1);
    } else {
      first.send(SIGCONT);
      first.wait();
    }
  }
  CHECK(stopped);
}

TEST_CASE("program: what a killed eval left in its folder goes with the next one, but no stranger's file") {
  const Subject s;
  io::create_folders(s.temp / "eval");
  for (const char* name : {"evaluation_results.json", "evaluation_report.md", "predictions.jsonl"})
    leave(io::temporary_name(s.temp / "eval" / name, io::Temporary::partial));
  const io::Path other = io::temporary_name(s.temp / "eval" / "trainer_log.jsonl", io::Temporary::partial);
  leave(other);
  const auto outcome = test::run_program(LORA_PROGRAM, s.eval());
  CAPTURE(outcome.errors);
  CHECK(outcome.status == 0);
  CHECK(partials(s.temp / "eval") == std::vector<io::Path>{other});
}

TEST_CASE("program: a folder that another run is using is refused to an evaluation, which writes nothing there") {
  const Subject s;
  io::create_folders(s.temp / "eval");
  std::optional<io::Lock> lock(s.temp / "eval");
  const auto outcome = test::run_program(LORA_PROGRAM, s.eval());
  CHECK(outcome.status == 1);
  CHECK(test::holds(outcome.errors, "another run is using " + (s.temp / "eval").native()));
  CHECK(std::filesystem::is_empty(s.temp / "eval"));
  lock.reset();
  CHECK(test::run_program(LORA_PROGRAM, s.eval()).status == 0);
}

TEST_CASE("program: an output of the longest name that a file can have is written, and a killed one cleared") {
  const Subject s;
  test::write_talking_adapter(s.temp / "model", s.temp / "adapter");
  for (const std::size_t length : {std::size_t{201}, std::size_t{240}, std::size_t{255}}) {
    CAPTURE(length);
    const io::Path place = s.temp / std::string(length, 'm');
    const auto merge = [&] {
      return test::run_program(LORA_PROGRAM, {"merge", "--model_name_or_path=" + (s.temp / "model").native(),
                                              "--threads=1", "--adapter_name_or_path=" + (s.temp / "adapter").native(),
                                              "--output_dir=" + place.native(), "--overwrite_output_dir"});
    };
    // The folders that a killed merge leaves: one not finished, and one that had to make room for it.
    io::create_folders(io::temporary_name(place, io::Temporary::writing));
    const io::Path former = io::temporary_name(place, io::Temporary::replaced);
    io::create_folders(former);
    const auto first = merge();
    CAPTURE(first.errors);
    CHECK(first.status == 0);
    CHECK(merge().status == 0);
    CHECK(std::filesystem::exists(place / "model.safetensors"));
    for (const auto& entry : std::filesystem::directory_iterator(s.temp.path())) {
      CAPTURE(entry.path().filename().native());
      CHECK(entry.path().native().find(".lora-") == std::string::npos);
    }
    const io::Path file = s.temp / std::string(length, 'g');
    auto words = s.words("generate", "--output_file=" + file.native());
    words.insert(words.end(), {"--max_new_tokens=1", "--max_samples=1"});
    CHECK(test::run_program(LORA_PROGRAM, words).status == 0);
    CHECK(std::filesystem::exists(file));
  }
}

}  // namespace killed_test
