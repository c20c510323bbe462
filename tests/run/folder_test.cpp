#include "lora/run/folder.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/temp_folder.hpp"

namespace folder_test {

using namespace lora;
using run::RunFolder;
using test::message_of;
using test::TempFolder;

namespace {

const std::vector<const char*> files = {"trainer_log.jsonl",
                                        "training.log",
                                        "training_metrics.json",
                                        "profile.md",
                                        "profile.json",
                                        "train_command.txt",
                                        "environment_info.txt",
                                        "tensorboard/events.out.tfevents.lora",
                                        "going_back.json",
                                        "report.html",
                                        "loss.svg",
                                        "run_config.json"};

io::Json run_config() {
  io::Json json;
  for (const char* key : {"model_name_or_path", "dataset", "output_dir", "lora_rank", "save_steps", "on_non_finite"})
    json[key] = nullptr;
  return json;
}

struct Subject {
  TempFolder temp = TempFolder::in_memory();
  io::Path output = temp / "run";
  RunFolder folder{output};

  Subject() { io::create_folders(output); }
  void write(const io::Path& name, std::string_view text = "x") const {
    io::create_folders((output / name).parent_path());
    std::filesystem::remove(output / name);
    io::write_file(output / name, text);
  }
  void write_config() const { io::write_json(output / "run_config.json", run_config()); }
  void save(Index step) const {
    run::RunState state;
    state.step = step;
    folder.checkpoints().save(state, [](const io::Path& path) { io::write_file(path / "a", std::string_view("a")); });
  }
  bool has(const io::Path& name) const { return io::is_there(output / name); }
  std::string refused() const {
    return message_of<ConfigError>([&] { folder.expect_own(); });
  }
  std::string in_the_way(const io::Path& name, const std::string& what) const {
    return concat("key output_dir: given ", output.native(), ", where ", (output / name).native(), " is in the way, ",
                  what, "; hint: give another folder, or move that away");
  }
};

}  // namespace

TEST_CASE("run folder: it is a run's by its run_config.json with all that a run notes, or by a checkpoint") {
  const Subject s;
  CHECK_FALSE(s.folder.is_a_runs());
  s.write_config();
  CHECK(s.folder.is_a_runs());
  const io::Json whole = run_config();
  for (const auto& field : whole.items()) {
    CAPTURE(field.key());
    io::Json json = whole;
    json.erase(field.key());
    s.write("run_config.json", io::to_text(json));
    CHECK_FALSE(s.folder.is_a_runs());
  }
  for (const char* other : {"[]", "{", ""}) {
    s.write("run_config.json", other);
    CHECK_FALSE(s.folder.is_a_runs());
  }
  s.save(3);
  CHECK(s.folder.is_a_runs());
  io::write_file(s.output / "checkpoints/checkpoint-3/notes", std::string_view("mine"));
  CHECK_FALSE(s.folder.is_a_runs());
  std::filesystem::remove(s.output / "run_config.json");
  io::write_json(s.temp / "elsewhere.json", whole);
  std::filesystem::create_symlink(s.temp / "elsewhere.json", s.output / "run_config.json");
  CHECK_FALSE(s.folder.is_a_runs());
}

TEST_CASE("run folder: each name of a run is taken for a run's only where there is one, and must be what runs write") {
  const Subject s;
  CHECK(s.refused() == "nothing was thrown");
  for (const char* name : files) {
    CAPTURE(name);
    s.write(name);
    CHECK(s.refused() == s.in_the_way(name, "which no run wrote, for there is no run's run_config.json"));
    std::filesystem::remove(s.output / name);
    std::filesystem::remove(s.output / "tensorboard");
  }
  s.write_config();
  for (const char* name : files) {
    CAPTURE(name);
    if (std::string_view(name) == "run_config.json") continue;
    s.write(name);
    CHECK(s.refused() == "nothing was thrown");
    std::filesystem::remove(s.output / name);
    io::create_folders(s.output / name);
    CHECK(s.refused() == s.in_the_way(name, "which is no regular file"));
    std::filesystem::remove(s.output / name);
    std::filesystem::remove(s.output / "tensorboard");
  }
  for (const char* name : {"final_model", "checkpoints", "tensorboard", "logs"}) {
    CAPTURE(name);
    s.write(name);
    CHECK(s.refused() == s.in_the_way(name, "which is no folder"));
    std::filesystem::remove(s.output / name);
    io::create_folders(s.output / name);
    CHECK(s.refused() == "nothing was thrown");
  }
}

TEST_CASE("run folder: a rank's log has a number in its name, and nothing else among logs is a run's") {
  const Subject s;
  const char* const own[] = {"rank-1.log", "rank-12.log", "rank-0.log"};
  const char* const others[] = {"rank-.log",   "rank-x.log",  "rank-1.txt",     "other-1.log",
                                "rank-1a.log", "rank--1.log", "rank-1.log.old", "xrank-1.log"};
  for (const char* name : others) s.write(io::Path("logs") / name);
  CHECK(s.refused() == "nothing was thrown");
  for (const char* name : own) {
    const io::Path path = io::Path("logs") / name;
    s.write(path);
    CHECK(s.refused() == s.in_the_way(path, "which no run wrote, for there is no run's run_config.json"));
    std::filesystem::remove(s.output / path);
  }
  s.write_config();
  for (const char* name : own) s.write(io::Path("logs") / name);
  CHECK(s.refused() == "nothing was thrown");
  s.folder.clear();
  for (const char* name : own) CHECK_FALSE(s.has(io::Path("logs") / name));
  for (const char* name : others) CHECK(s.has(io::Path("logs") / name));
}

TEST_CASE("run folder: a final_model that no run wrote is told with what is in it") {
  const Subject s;
  const auto said = [&] { return message_of<ConfigError>([&] { s.folder.expect_own_final_model(); }); };
  CHECK(said() == "nothing was thrown");
  s.write("final_model/README.md", concat("---\n", run::model_card_head));
  CHECK(said() == "nothing was thrown");
  s.write("final_model/notes");
  CHECK(said() == s.in_the_way("final_model", "which is not a run's: it holds notes, which no run wrote there"));
}

TEST_CASE("run folder: no input may have the name of what a run writes, or lie in its folders") {
  const Subject s;
  const auto said = [&](const io::Path& input) {
    return message_of<ConfigError>([&] { s.folder.expect_outside("dataset", input); });
  };
  const auto expected = [&](const io::Path& input, const io::Path& place) {
    return concat("key dataset: given ", input.native(), ", which lies in ", (s.output / place).native(),
                  ", where the run of output_dir writes; allowed: a place outside of it");
  };
  s.write("mine.jsonl");
  CHECK(said(s.output / "mine.jsonl") == "nothing was thrown");
  for (const char* name : files) {
    CAPTURE(name);
    s.write(name);
    CHECK(said(s.output / name) == expected(s.output / name, name));
    std::filesystem::remove(s.output / name);
  }
  for (const char* name : {"final_model", "checkpoints", "tensorboard", "logs"}) {
    const io::Path file = io::Path(name) / "x";
    s.write(file);
    CHECK(said(s.output / file) == expected(s.output / file, name));
  }
}

TEST_CASE("run folder: what was unfinished of a run's names goes, and of others stays") {
  const Subject s;
  const auto left = [&](const io::Path& name) {
    const io::Path path = io::temporary_name(s.output / name, io::Temporary::partial);
    io::create_folders(path.parent_path());
    io::write_file(path, std::string_view("x"));
    return path;
  };
  for (const char* name : files) {
    if (std::string_view(name).find('/') != std::string_view::npos) continue;
    CAPTURE(name);
    const io::Path path = left(name);
    s.folder.recover();
    CHECK_FALSE(io::is_there(path));
  }
  const io::Path other = left("mine.jsonl");
  s.folder.recover();
  CHECK(io::is_there(other));
}

TEST_CASE("run folder: a note of going back has its step, and a damaged one is an error") {
  const Subject s;
  CHECK_FALSE(s.folder.going_back());
  s.write("going_back.json", "{\"to_step\": -1}");
  CHECK(s.folder.going_back() == -1);
  s.write("going_back.json", "{\"to_step\": 12}");
  CHECK(s.folder.going_back() == 12);
  for (const char* other : {"{}", "{\"to_step\": \"1\"}", "{"}) {
    s.write("going_back.json", other);
    CHECK(test::holds(message_of<FormatError>([&] { (void)s.folder.going_back(); }), "going_back.json"));
  }
}

TEST_CASE("run folder: going on takes the result away unless it is of this step, going back what came later as well") {
  const test::Quiet quiet;
  const Subject s;
  const char* const pictures[] = {"profile.md", "profile.json", "report.html", "loss.svg"};
  const auto prepare = [&](bool finished) {
    std::filesystem::remove_all(s.output);
    io::create_folders(s.output);
    for (const Index step : {2, 4}) s.save(step);
    run::RunMetrics metrics;
    metrics.finished = finished;
    metrics.steps = 4;
    run::write_training_metrics(s.output, metrics);
    for (const char* name : pictures) s.write(name);
    for (const char* name : {"trainer_log.jsonl", "going_back.json"}) s.write(name);
  };
  const auto check = [&](Index step, bool works, bool goes_back, bool stays, bool finished = true) {
    prepare(finished);
    s.folder.go_on_from(step, works, goes_back);
    CHECK(s.has("training_metrics.json") == stays);
    for (const char* name : pictures) CHECK(s.has(name) != goes_back);
    CHECK(s.folder.checkpoints().steps().size() == (goes_back && step < 4 ? 1 : 2));
    CHECK(s.has("trainer_log.jsonl"));
    CHECK_FALSE(s.has("going_back.json"));
  };
  check(4, false, false, true);
  check(4, false, false, false, false);  // the run was stopped
  check(3, false, false, false);
  check(4, true, false, false);
  check(4, false, true, false);
  check(2, true, true, false);
}

TEST_CASE("run folder: a new start removes what runs write but final_model, and folders that are empty then") {
  const test::Quiet quiet;
  const Subject s;
  for (const char* name : files) s.write(name);
  s.write_config();
  for (const Index step : {2, 4}) s.save(step);
  for (const char* name : {"final_model/README.md", "mine.txt", "logs/rank-1.log"}) s.write(name);
  s.folder.clear();
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(s.output))
    left.push_back(entry.path().lexically_relative(s.output).native());
  std::sort(left.begin(), left.end());
  CHECK(left == std::vector<std::string>{"final_model", "final_model/README.md", "mine.txt"});
  for (const char* name : {"tensorboard", "checkpoints", "logs"}) s.write(io::Path(name) / "mine");
  s.folder.clear();
  for (const char* name : {"tensorboard", "checkpoints", "logs"}) CHECK(s.has(io::Path(name) / "mine"));
}

}  // namespace folder_test
