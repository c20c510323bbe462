#include "lora/run/checkpoint.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/instantiate.hpp"
#include "support/effort.hpp"
#include "support/file_faults.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace checkpoint_test {

using namespace lora;
using namespace lora::run;
using io::write_whole_folder;
using lora::test::Fault;
using lora::test::Quiet;
using lora::test::TempFolder;

namespace {

RunState state_at(Index step) {
  RunState state;
  state.step = step;
  state.updates = step - 1;
  state.next_sample = 8 * step;
  state.total_tokens = 100 * step;
  state.last_loss = 1.0 / 3;
  state.best_eval_loss = 0.1;
  state.best_step = 2;
  state.to_beat.emplace(0.05, 1);
  state.skipped = 3;
  state.overflows = 4;
  state.settings = {{"lora_rank", 8}};
  return state;
}

std::string payload(Index step) { return concat("payload of ", step, std::string(5000, 'x')); }

void save(const Checkpoints& checkpoints, Index step) {
  checkpoints.save(state_at(step), [&](const io::Path& folder) {
    io::write_file(folder / "adapter.bin", payload(step));
    io::write_file(folder / "optimizer.bin", payload(-step));
  });
}

void flip_byte(const io::Path& path) {
  std::string bytes = io::read_file(path);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  std::ofstream(path, std::ios::binary) << bytes;
}

bool is_whole(const Checkpoints& checkpoints, Index step) {
  try {
    return Checkpoints::open(checkpoints.folder_of(step)).state.step == step &&
           io::read_file(checkpoints.folder_of(step) / "adapter.bin") == payload(step);
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

TEST_CASE("checkpoint: the state comes back as it was") {
  const TempFolder temp;
  const Checkpoints checkpoints(temp.path());
  CHECK_FALSE(checkpoints.newest());
  save(checkpoints, 3);
  const auto found = checkpoints.newest();
  REQUIRE(found);
  CHECK(found->folder == temp / "checkpoints/checkpoint-3");
  CHECK(found->state.step == 3);
  CHECK(found->state.updates == 2);
  CHECK(found->state.next_sample == 24);
  CHECK(found->state.total_tokens == 300);
  CHECK(found->state.last_loss == 1.0 / 3);
  CHECK_FALSE(found->state.last_eval_loss);
  CHECK(found->state.best_eval_loss == 0.1);
  CHECK(found->state.best_step == 2);
  CHECK(found->state.to_beat == std::pair<double, Index>(0.05, 1));
  CHECK(found->state.skipped == 3);
  CHECK(found->state.overflows == 4);
  CHECK(found->state.settings == io::Json{{"lora_rank", 8}});
}

TEST_CASE("checkpoint: the newest is by number, not by name") {
  const TempFolder temp;
  const Checkpoints checkpoints(temp.path());
  for (const Index step : {9, 10, 2}) save(checkpoints, step == 2 ? 11 : step);
  CHECK(checkpoints.steps() == std::vector<Index>{9, 10, 11});
  CHECK(checkpoints.newest()->state.step == 11);
}

TEST_CASE("checkpoint: a damaged one is skipped with a warning that says why") {
  const auto check = [](const auto& damage, const std::string& why) {
    const TempFolder temp;
    const Checkpoints checkpoints(temp.path());
    save(checkpoints, 4);
    save(checkpoints, 8);
    damage(checkpoints.folder_of(8));
    const Quiet quiet;
    const auto found = checkpoints.newest();
    REQUIRE(found);
    CHECK(found->state.step == 4);
    CAPTURE(quiet.text);
    CHECK(quiet.said("skipping"));
    CHECK(quiet.said(why));
  };
  check([](const io::Path& folder) { flip_byte(folder / "adapter.bin"); },
        "its checksum is not that of what was written");
  check([](const io::Path& folder) { std::filesystem::remove(folder / "optimizer.bin"); }, "optimizer.bin is missing");
  check([](const io::Path& folder) { std::filesystem::resize_file(folder / "adapter.bin", 10); }, "has 10 bytes; 50");
  check([](const io::Path& folder) { std::filesystem::remove(folder / "trainer_state.json"); }, "trainer_state.json");
  check([](const io::Path& folder) { std::filesystem::resize_file(folder / "trainer_state.json", 40); },
        "trainer_state.json:4:11");
  check([](const io::Path& folder) { std::filesystem::resize_file(folder / "trainer_state.json", 0); }, ":1:1");
  check(
      [](const io::Path& folder) {
        std::string text = io::read_file(folder / "trainer_state.json");
        text.replace(text.find("\"next_sample\": 64"), 17, "\"next_sample\": 65");
        std::ofstream(folder / "trainer_state.json") << text;
      },
      "its checksum does not match its content");
}

TEST_CASE("checkpoint: the newest is found without a word, where none is wanted") {
  const TempFolder temp;
  const Checkpoints checkpoints(temp.path());
  for (const Index step : {4, 8}) save(checkpoints, step);
  flip_byte(checkpoints.folder_of(8) / "adapter.bin");
  const Quiet quiet;
  CHECK(checkpoints.newest(false)->state.step == 4);
  CHECK(quiet.text.empty());
}

TEST_CASE("checkpoint: one that was found whole before is not read again, unless it was written anew") {
  const TempFolder temp;
  const Checkpoints checkpoints(temp.path());
  for (const Index step : {4, 8}) save(checkpoints, step);
  const auto known = checkpoints.newest();
  REQUIRE(known);
  const Quiet quiet;
  flip_byte(known->folder / "adapter.bin");  // would be seen by who reads
  CHECK(checkpoints.newest(true, &*known)->state.step == 8);
  CHECK(Checkpoints::open(known->folder, &*known).checksum == known->checksum);
  const auto older = checkpoints.newest();
  CHECK(older->state.step == 4);
  CHECK(checkpoints.newest(true, &*older)->state.step == 4);  // another one is known
  std::filesystem::resize_file(known->folder / "adapter.bin", 10);
  CHECK(checkpoints.newest(true, &*known)->state.step == 4);

  RunState other = state_at(8);
  other.total_tokens += 1;
  checkpoints.save(other, [](const io::Path& folder) { io::write_file(folder / "adapter.bin", payload(8)); });
  CHECK(checkpoints.newest(true, &*known)->state.total_tokens == other.total_tokens);
  flip_byte(known->folder / "adapter.bin");
  CHECK(checkpoints.newest(true, &*known)->state.step == 4);
}

TEST_CASE("checkpoint: a copy of one that was found whole is read, since it may be damaged") {
  const TempFolder temp;
  const Checkpoints checkpoints(temp.path());
  save(checkpoints, 4);
  const auto known = checkpoints.newest();
  REQUIRE(known);
  const io::Path copy = temp / "copy";
  std::filesystem::copy(known->folder, copy, std::filesystem::copy_options::recursive);
  CHECK(Checkpoints::open(copy, &*known).folder == copy);
  flip_byte(copy / "adapter.bin");
  CHECK(test::message_of<FormatError>([&] { Checkpoints::open(copy, &*known); }) ==
        (copy / "adapter.bin").native() + ": its checksum is not that of what was written");
}

TEST_CASE("checkpoint: one that is named and not there is an error, however odd the name") {
  const TempFolder temp;
  for (const io::Path& name : {temp / "none", temp / std::string(300, 'x'), io::Path("")})
    CHECK(test::message_of<IoError>([&] { Checkpoints::open(name); }) == "no checkpoint at " + name.native());
}

TEST_CASE("checkpoint: names that are none are left alone") {
  const TempFolder temp;
  const Checkpoints checkpoints(temp.path());
  save(checkpoints, 1);
  for (const char* name : {"checkpoint-", "checkpoint-2x", "checkpoint--3", "other", "checkpoint-5.copy"})
    std::filesystem::create_directories(checkpoints.folder() / name);
  CHECK(checkpoints.steps() == std::vector<Index>{1});
  checkpoints.recover();
  CHECK(std::filesystem::exists(checkpoints.folder() / "other"));
  CHECK(std::filesystem::exists(checkpoints.folder() / "checkpoint-5.copy"));
}

namespace {

/// Writes the state file anew with other fields, and its checksum as it should be.
void change_state(const io::Path& folder, const io::Json& fields) {
  io::Json json = io::read_json(folder / "trainer_state.json");
  json.update(fields);
  json.erase("checksum");
  json["checksum"] = checksum_text(checksum(io::to_text(json)));
  io::write_json(folder / "trainer_state.json", json);
}

}  // namespace

TEST_CASE("checkpoint: one that can't be read, or is of another version, is not passed over") {
  const TempFolder temp;
  const Checkpoints checkpoints(temp.path());
  for (const Index step : {4, 8}) save(checkpoints, step);
  const Quiet quiet;
  SUBCASE("a newer format") {
    change_state(checkpoints.folder_of(8), {{"format", 3}});
    CHECK_THROWS_WITH_AS(checkpoints.newest(), doctest::Contains("\"format\" is 3; this version reads 2"), FormatError);
  }
  SUBCASE("a folder where a file should be") {
    std::filesystem::remove(checkpoints.folder_of(8) / "optimizer.bin");
    std::filesystem::create_directory(checkpoints.folder_of(8) / "optimizer.bin");
    CHECK_THROWS_WITH_AS(checkpoints.newest(), doctest::Contains("optimizer.bin"), IoError);
  }
  SUBCASE("a file that may not be opened") {
    for (const char* name : {"optimizer.bin", "trainer_state.json"}) {
      CAPTURE(name);
      std::filesystem::remove(checkpoints.folder_of(8) / name);
      std::filesystem::create_symlink(name, checkpoints.folder_of(8) / name);  // a loop: nobody, root neither, opens it
      CHECK_THROWS_AS(checkpoints.newest(), IoError);
      CHECK_THROWS_WITH(checkpoints.newest(), doctest::Contains(name));
    }
  }
  CHECK(checkpoints.steps() == std::vector<Index>{4, 8});
}

TEST_CASE("checkpoint: a folder that no run wrote, or that somebody added to, is never removed or replaced") {
  const auto check = [](const auto& make, const std::string& why) {
    CAPTURE(why);
    const TempFolder temp;
    const Checkpoints checkpoints(temp.path());
    const Quiet quiet;
    for (const Index step : {1, 2, 3}) save(checkpoints, step);
    make(checkpoints.folder_of(2));
    CHECK(checkpoints.own_steps() == std::vector<Index>{1, 3});
    CHECK(run::detail::stranger_in_checkpoint(checkpoints.folder_of(2)).find(why) != std::string::npos);
    CHECK_NOTHROW(checkpoints.expect_places(2, 9));
    CHECK_NOTHROW(checkpoints.expect_places(0, 1));
    CHECK_THROWS_WITH_AS(checkpoints.expect_places(1, 2), doctest::Contains(why.c_str()), ConfigError);
    CHECK_THROWS_WITH_AS(save(checkpoints, 2), doctest::Contains("is in the way"), IoError);
    CHECK_THROWS_AS(checkpoints.remove(2), IoError);
    save(checkpoints, 1);  // a run that went back
    CHECK(checkpoints.steps() == std::vector<Index>{1, 2});
    for (const Index step : {3, 4}) save(checkpoints, step);
    checkpoints.rotate(1, std::nullopt);
    CHECK(checkpoints.steps() == std::vector<Index>{2, 4});
  };
  check([](const io::Path& folder) { io::write_file(folder / "notes.txt", std::string_view("mine")); },
        "it holds notes.txt, which no run wrote there");
  check(
      [](const io::Path& folder) {
        std::filesystem::remove_all(folder);
        io::create_folders(folder);
        io::write_file(folder / "novel.txt", std::string_view("mine"));
      },
      "it holds no trainer_state.json");
  check(
      [](const io::Path& folder) {  // of another trainer
        std::filesystem::remove_all(folder);
        io::create_folders(folder);
        io::write_file(folder / "trainer_state.json", std::string_view("{\"global_step\": 2, \"log_history\": []}"));
      },
      "its checksum does not match");
  check([](const io::Path& folder) { change_state(folder, {{"step", 7}}); }, "is not of this step");
  check(
      [](const io::Path& folder) {
        std::filesystem::rename(folder, folder.parent_path() / "kept");
        std::filesystem::create_directory_symlink("kept", folder);
      },
      "it is no folder");
}

TEST_CASE("checkpoint: rotation keeps the newest and the chosen one") {
  const TempFolder temp;
  const Checkpoints checkpoints(temp.path());
  for (const Index step : {1, 2, 3, 4, 5}) save(checkpoints, step);
  checkpoints.rotate(2, 2);
  CHECK(checkpoints.steps() == std::vector<Index>{2, 4, 5});
  checkpoints.rotate(1, std::nullopt);
  CHECK(checkpoints.steps() == std::vector<Index>{5});
  checkpoints.rotate(0, std::nullopt);
  CHECK(checkpoints.steps() == std::vector<Index>{5});
}

TEST_CASE("checkpoint: a folder whose number is written otherwise is none, and counts for nothing") {
  const TempFolder temp;
  const Checkpoints checkpoints(temp.path());
  for (const Index step : {1, 2, 3}) save(checkpoints, step);
  for (const char* name : {"checkpoint-02", "checkpoint-2x", "checkpoint--0", "checkpoint-", "checkpoint-+2"})
    std::filesystem::copy(checkpoints.folder_of(2), checkpoints.folder() / name);
  CHECK(checkpoints.steps() == std::vector<Index>{1, 2, 3});
  checkpoints.rotate(2, std::nullopt);
  CHECK(checkpoints.steps() == std::vector<Index>{2, 3});
  CHECK(std::filesystem::exists(checkpoints.folder() / "checkpoint-02"));
}

TEST_CASE("checkpoint: those past the step where a run stands neither count in a rotation nor go") {
  const TempFolder temp;
  const Checkpoints checkpoints(temp.path());
  for (const Index step : {1, 2, 3, 4, 5}) save(checkpoints, step);
  flip_byte(checkpoints.folder_of(5) / "adapter.bin");
  checkpoints.rotate(1, std::nullopt, 3);
  CHECK(checkpoints.steps() == std::vector<Index>{3, 4, 5});
  CHECK(checkpoints.newest(false, nullptr, 3)->state.step == 3);
  CHECK_FALSE(checkpoints.newest(false, nullptr, 2));
}

TEST_CASE("checkpoint: those past a step go the newest first, so that a kill leaves no gap") {
  const TempFolder temp;
  const Checkpoints checkpoints(temp.path());
  for (const Index step : {2, 4, 6, 8}) save(checkpoints, step);
  const Quiet quiet;
  struct : io::FileHook {
    std::vector<std::string> away{};
    io::FileVerdict before(const io::FileOperation&) override { return {}; }
    void after(const io::FileOperation& operation) override {
      if (operation.kind == io::FileOperation::Kind::rename) away.push_back(operation.path.filename().native());
    }
  } seen;
  io::FileHook* const former = io::set_file_hook(&seen);
  checkpoints.remove_past(3);
  io::set_file_hook(former);
  CHECK(seen.away == std::vector<std::string>{"checkpoint-8", "checkpoint-6", "checkpoint-4"});
  CHECK(checkpoints.steps() == std::vector<Index>{2});
}

TEST_CASE("checkpoint: one that is looked for says why it is not there, unless it can't be read") {
  const TempFolder temp;
  const Checkpoints checkpoints(temp.path());
  save(checkpoints, 2);
  std::string why;
  CHECK(checkpoints.find(2, why)->state.step == 2);
  CHECK_FALSE(checkpoints.find(3, why));
  CHECK(why == concat("no checkpoint at ", checkpoints.folder_of(3).native()));
  flip_byte(checkpoints.folder_of(2) / "adapter.bin");
  CHECK_FALSE(checkpoints.find(2, why));
  CHECK(why.ends_with("its checksum is not that of what was written"));
  std::filesystem::remove(checkpoints.folder_of(2) / "adapter.bin");
  std::filesystem::create_symlink("adapter.bin", checkpoints.folder_of(2) / "adapter.bin");  // a loop
  CHECK_THROWS_AS(checkpoints.find(2, why), IoError);
}

TEST_CASE("checkpoint: the room it takes is three numbers of four bytes for each that trains, and a mebibyte") {
  const TempFolder temp = TempFolder::in_memory();
  test::write_random_model(temp / "model", {});
  cpu::Device dev(1);
  const auto source = model::Source::open(temp / "model");
  model::Decoder<cpu::Device, float> decoder(dev, source);
  model::AdapterConfig adapter;
  adapter.rank = 2;
  adapter.targets = {"q_proj"};
  decoder.attach(dev, adapter);
  // In each of 2 layers A (2, 16) and B (16, 2): of the value itself, and of its two moments.
  CHECK(checkpoint_bytes(decoder, nullptr) == (std::uint64_t{1} << 20) + 3 * 4 * 2 * (2 * 16 + 16 * 2));
}

TEST_CASE("checkpoint: rotation removes nothing while the newest is damaged") {
  const TempFolder temp;
  const Checkpoints checkpoints(temp.path());
  for (const Index step : {1, 2, 3}) save(checkpoints, step);
  flip_byte(checkpoints.folder_of(3) / "adapter.bin");
  Quiet quiet;
  checkpoints.rotate(1, std::nullopt);
  CHECK(checkpoints.steps() == std::vector<Index>{1, 2, 3});
  CHECK(quiet.said("keeping all checkpoints, since the newest does not read back"));
  quiet.text.clear();
  save(checkpoints, 4);
  change_state(checkpoints.folder_of(4), {{"format", 3}});
  checkpoints.rotate(1, std::nullopt);
  CHECK(checkpoints.steps() == std::vector<Index>{1, 2, 3, 4});
  CHECK(quiet.text == concat("keeping all checkpoints, since the newest does not read back: ",
                             (checkpoints.folder_of(4) / "trainer_state.json").native(),
                             ": \"format\" is 3; this version reads 2\n"));
}

TEST_CASE("checkpoint: a run that went back removes what lies past it") {
  const TempFolder temp;
  const Checkpoints checkpoints(temp.path());
  for (const Index step : {2, 4, 6}) save(checkpoints, step);
  const Quiet quiet;
  save(checkpoints, 4);
  CHECK(checkpoints.steps() == std::vector<Index>{2, 4});
  CHECK(quiet.said("checkpoint-6"));
}

TEST_CASE("checkpoint: a save whose files fail leaves nothing half-written") {
  const TempFolder temp;
  const Checkpoints checkpoints(temp.path());
  save(checkpoints, 1);
  CHECK_THROWS_AS(checkpoints.save(state_at(2),
                                   [](const io::Path& folder) {
                                     io::write_file(folder / "adapter.bin", "x");
                                     fail<IoError>("disk full");
                                   }),
                  IoError);
  CHECK(io::entries_of(checkpoints.folder()) == std::vector<io::Path>{checkpoints.folder_of(1)});
}

TEST_CASE("checkpoint: an unwritable place is a clear error") {
  const TempFolder temp;
  io::write_file(temp / "file", "x");
  CHECK_THROWS_WITH_AS(save(Checkpoints(temp / "file"), 1), doctest::Contains("Not a directory"), IoError);
}

namespace {

/// What a save is made of in the sweep: two files that stand in for a run's.
struct StandIns {
  static void save(const Checkpoints& checkpoints, Index step) { checkpoint_test::save(checkpoints, step); }
  static bool is_whole(const Checkpoints& checkpoints, Index step) {
    return checkpoint_test::is_whole(checkpoints, step);
  }
};

/// The same with the files of a training run: its log, and an adapter with its optimizer's state.
class RealFiles {
 public:
  RealFiles() {
    test::write_random_model(temp_ / "model", one_layer());
    source_.emplace(model::Source::open(temp_ / "model"));
    decoder_.emplace(dev_, *source_);
    model::AdapterConfig adapter;
    adapter.rank = 1;
    adapter.targets = {"q_proj"};
    decoder_->attach(dev_, adapter);
    optimizer_.emplace(dev_, decoder_->params(), optim::AdamWSettings{});
    const Checkpoints checkpoints(temp_ / "expected");
    for (const Index step : {2, 4, 6, 8}) {
      save(checkpoints, step);
      bytes_[step] = content(checkpoints, step);
      const auto values = numbers();
      set(0);
      REQUIRE(numbers() != values);
      model::load_adapter(dev_, *decoder_, model::open_adapter(checkpoints.folder_of(step)));
      load_optimizer(dev_, *optimizer_, step, checkpoints.folder_of(step));
      REQUIRE(numbers() == values);
    }
  }

  /// As a run does, with a line of the log before.
  void save(const Checkpoints& checkpoints, Index step) {
    set(step);
    const io::Path run = checkpoints.folder().parent_path();
    const auto found = checkpoints.newest();
    MetricsLog log(run, found ? std::optional(found->state.step) : std::nullopt);
    StepMetrics metrics;
    metrics.step = step;
    log.take(StepEvent{metrics, true});
    log.take(SavingEvent{step});
    checkpoints.save(state_at(step), [&](const io::Path& folder) {
      write_adapter_folder(dev_, *decoder_, *source_, {}, "a card", folder);
      save_optimizer(dev_, *optimizer_, folder);
    });
  }

  /// Its files are as they were written, and the log leads up to it.
  bool is_whole(const Checkpoints& checkpoints, Index step) const {
    try {
      const bool state = Checkpoints::open(checkpoints.folder_of(step)).state.step == step;
      return state && content(checkpoints, step) == bytes_.at(step) && logged(checkpoints) >= step;
    } catch (const Error&) {
      return false;
    }
  }

 private:
  static test::RandomModel one_layer() {
    test::RandomModel shape;
    shape.layers = 1;
    return shape;
  }

  void set(Index step) {
    model::init_adapter(dev_, *decoder_, static_cast<std::uint64_t>(step));
    optimizer_->for_each_state([&](const auto& tensor) {
      kernel::fill(dev_, tensor.own, static_cast<double>(step) + (tensor.name.ends_with("_sq") ? 0.5 : 0));
    });
  }

  std::vector<float> numbers() {
    std::vector<float> all;
    const auto add = [&](const auto& view) {
      for (const float value : to_host(dev_, view)) all.push_back(value);
    };
    decoder_->params().for_each([&](const auto& param) { add(param.value); });
    optimizer_->for_each_state([&](const auto& tensor) { add(tensor.own); });
    return all;
  }

  static std::string content(const Checkpoints& checkpoints, Index step) {
    std::string bytes;
    for (const char* name : {"adapter_config.json", "adapter_model.safetensors", "README.md", "optimizer.safetensors"})
      bytes += io::read_file(checkpoints.folder_of(step) / name);
    return bytes;
  }

  /// The step of the log's last line, if those before it are there.
  static Index logged(const Checkpoints& checkpoints) {
    const std::string text = io::read_file(checkpoints.folder().parent_path() / "trainer_log.jsonl");
    Index step = 0;
    for (std::size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
      if (io::parse_json(text.substr(at, end - at), "log").at("step") != step + 2) break;
      step += 2;
    }
    return step;
  }

  TempFolder temp_ = TempFolder::in_memory();
  cpu::Device dev_{1};
  std::optional<model::Source> source_;
  std::optional<model::Decoder<cpu::Device, float>> decoder_;
  std::optional<optim::AdamW<cpu::Device, float>> optimizer_;
  std::map<Index, std::string> bytes_;
};

/// One fault at every `stride`-th operation of a save and a rotation, over checkpoints 2, 4 and 6. `replaces`: a
/// damaged one has the place of the new.
template <class Files>
void sweep_saves(Files& files, Fault fault, bool replaces, Index stride) {
  CAPTURE(static_cast<int>(fault));
  CAPTURE(replaces);
  const TempFolder temp = TempFolder::in_memory(), before = TempFolder::in_memory();
  const Checkpoints checkpoints(temp / "run"), prepared(before / "run");
  const Quiet quiet;
  for (const Index step : {2, 4, 6, 8})
    if (step < 8 || replaces) files.save(prepared, step);
  if (replaces) flip_byte(prepared.folder_of(8) / "adapter.bin");
  const auto prepare = [&](Index) {
    std::filesystem::remove_all(temp / "run");
    std::filesystem::copy(before / "run", temp / "run", std::filesystem::copy_options::recursive);
  };
  const auto run = [&] {
    files.save(checkpoints, 8);
    checkpoints.rotate(2, 2);
  };
  const auto check = [&](Index at, bool reached) {
    CAPTURE(at);
    checkpoints.recover();
    for (const auto& entry : io::entries_of(checkpoints.folder()))
      CHECK(run::detail::checkpoint_step(entry).has_value());
    const auto found = checkpoints.newest();
    REQUIRE(found);
    CHECK(found->state.step >= 6);
    CHECK(files.is_whole(checkpoints, found->state.step));
    CHECK(files.is_whole(checkpoints, 2));
    CHECK(files.is_whole(checkpoints, 6));
    if (found->state.step == 6) CHECK(files.is_whole(checkpoints, 4));
    if (!reached) CHECK(found->state.step == 8);
    run();
    CHECK(checkpoints.steps() == std::vector<Index>{2, 6, 8});
    CHECK(files.is_whole(checkpoints, 8));
  };
  CHECK(test::sweep_faults(temp.path(), fault, prepare, run, check, stride) > 20);
}

constexpr Fault all_faults[] = {Fault::fails,          Fault::disk_full,      Fault::short_write, Fault::dies,
                                Fault::dies_mid_write, Fault::loses_unsynced, Fault::loses_data};

}  // namespace

TEST_CASE("checkpoint: whatever goes wrong at any operation of a save and a rotation, nothing older is lost") {
  StandIns files;
  for (const Fault fault : all_faults)
    for (const bool replaces : {false, true})
      sweep_saves(files, fault, replaces, test::effort<Index>(1, 5, "checkpoint: four of five operations of a save"));
}

TEST_CASE("checkpoint: nor where the file system can't exchange two names") {
  StandIns files;
  test::FileFaults::exchanges = false;
  for (const Fault fault : all_faults)
    sweep_saves(files, fault, true, test::effort<Index>(1, 5, "checkpoint: four of five operations of a save"));
  test::FileFaults::exchanges = true;
}

TEST_CASE("checkpoint: nor at any operation of a run's own files, its log, adapter and optimizer") {
  RealFiles files;
  for (const Fault fault : all_faults)
    sweep_saves(files, fault, false, test::effort<Index>(1, 23, "checkpoint: 22 of 23 file operations that fail"));
}

TEST_CASE("checkpoint: once a save has returned, a loss of power does not take it") {
  const TempFolder temp;
  const Checkpoints checkpoints(temp / "run");
  for (const Fault fault : {Fault::loses_unsynced, Fault::loses_data}) {
    save(checkpoints, 2);
    {
      test::FileFaults power(temp.path(), fault, -1);
      save(checkpoints, 4);
    }
    CHECK(checkpoints.newest()->state.step == 4);
    std::filesystem::remove_all(temp / "run");
  }
}

TEST_CASE("checkpoint: a whole folder's names are durable, even if its files were only synced themselves") {
  const TempFolder temp;
  {
    test::FileFaults power(temp.path(), Fault::loses_unsynced, -1);
    write_whole_folder(temp / "run" / "folder", run::detail::stranger_in_checkpoint, [](const io::Path& folder) {
      io::FileWriter file(folder / "file");
      file.write("content");
      file.sync();
    });
  }
  CHECK(io::read_file(temp / "run" / "folder" / "file") == "content");
}

TEST_CASE("checkpoint: the state file notes size and checksum of every other file, and its own last") {
  const TempFolder temp;
  const Checkpoints checkpoints(temp.path());
  save(checkpoints, 3);
  const io::Path folder = checkpoints.folder_of(3);
  io::Json json = io::read_json(folder / "trainer_state.json");
  REQUIRE(json.at("files").size() == 2);
  for (const char* name : {"adapter.bin", "optimizer.bin"}) {
    const io::Json& facts = json.at("files").at(name);
    CHECK(facts.at("size") == std::filesystem::file_size(folder / name));
    CHECK(facts.at("checksum") == checksum_text(checksum(io::read_file(folder / name))));
  }
  const std::string sum = json.at("checksum");
  json.erase("checksum");
  CHECK(sum == checksum_text(checksum(io::to_text(json))));
  CHECK(Checkpoints::open(folder).checksum == sum);
}

TEST_CASE("checkpoint: what is wrong with one is told with its file, and what was found and written") {
  const TempFolder temp;
  const Checkpoints checkpoints(temp.path());
  const io::Path folder = checkpoints.folder_of(3), state = folder / "trainer_state.json";
  const auto said = [&](const auto& damage) {
    std::filesystem::remove_all(folder);
    save(checkpoints, 3);
    damage();
    std::string why;
    CHECK_FALSE(checkpoints.find(3, why));
    return why;
  };
  const std::size_t size = payload(3).size();
  CHECK(said([&] { std::filesystem::resize_file(folder / "adapter.bin", 10); }) ==
        concat((folder / "adapter.bin").native(), " has 10 bytes; ", size, " were written"));
  CHECK(said([&] { std::filesystem::resize_file(folder / "adapter.bin", size + 1); }) ==
        concat((folder / "adapter.bin").native(), " has ", size + 1, " bytes; ", size, " were written"));
  CHECK(said([&] { std::filesystem::remove(folder / "optimizer.bin"); }) ==
        (folder / "optimizer.bin").native() + " is missing");
  CHECK(said([&] { std::filesystem::remove(state); }) == state.native() + " is missing");
  CHECK(said([&] { io::write_file(state, std::string_view("[]")); }) == state.native() + ": expected an object");
  CHECK(said([&] { flip_byte(folder / "optimizer.bin"); }) ==
        (folder / "optimizer.bin").native() + ": its checksum is not that of what was written");
  for (const io::Json& sum : {io::Json("0123456789abcdef"), io::Json(5), io::Json(nullptr)})
    CHECK(said([&] {
            io::Json json = io::read_json(state);
            json["checksum"] = sum;
            io::write_json(state, json);
          }) == state.native() + ": its checksum does not match its content");
}

TEST_CASE("checkpoint: one whose fields no version wrote is an error, not passed over, and no run's own") {
  const TempFolder temp;
  const Checkpoints checkpoints(temp.path());
  const io::Path folder = checkpoints.folder_of(3), state = folder / "trainer_state.json";
  const auto said = [&](const io::Json& fields) {
    std::filesystem::remove_all(folder);
    save(checkpoints, 3);
    change_state(folder, fields);
    std::string why;
    return test::message_of<FormatError>([&] { (void)checkpoints.find(3, why); });
  };
  const auto stranger = [&] { return run::detail::stranger_in_checkpoint(folder); };
  const std::string of_another = "its trainer_state.json is not of this step of a run";
  CHECK(said({{"files", nullptr}}) == state.native() + ": \"files\" must be an object");
  CHECK(stranger() == of_another);
  CHECK(said({{"files", io::Json::array()}}) == state.native() + ": \"files\" must be an object");
  CHECK(stranger() == of_another);
  said({{"step", "3"}});
  CHECK(stranger() == of_another);
  said({{"step", nullptr}});
  CHECK(stranger() == of_another);
  CHECK(said({{"format", 1}}) == state.native() + ": \"format\" is 1; this version reads 2");
  CHECK(stranger().empty());
  CHECK(said({{"format", nullptr}}) == "nothing was thrown");
}

TEST_CASE("checkpoint: where the state file is damaged, the README.md says whose the folder is") {
  const TempFolder temp;
  const Checkpoints checkpoints(temp.path());
  const io::Path folder = checkpoints.folder_of(3);
  const auto write = [&](const char* name, std::string_view text) { io::write_file(folder / name, text); };
  checkpoints.save(state_at(3), [&](const io::Path& path) {
    io::write_file(path / "README.md", concat("---\n", model_card_head, "x"));
    io::write_file(path / "trained.safetensors", std::string_view("x"));
    io::write_file(path / "optimizer.safetensors", std::string_view("x"));
    io::write_file(path / "model.safetensors", std::string_view("x"));
  });
  CHECK(checkpoints.own_steps() == std::vector<Index>{3});
  write("trainer_state.json", "{}");
  const auto stranger = [&] { return run::detail::stranger_in_checkpoint(folder); };
  // A trained.safetensors is a run's in the folder of its model.
  CHECK(stranger().empty());
  write("notes.txt", "mine");
  CHECK(stranger() == (folder / "trainer_state.json").native() + ": its checksum does not match its content");
  std::filesystem::remove(folder / "notes.txt");
  CHECK(stranger().empty());
  write("README.md", "# mine");
  CHECK_FALSE(stranger().empty());
}

TEST_CASE("checkpoint: a rotation looks at nothing while there are no more than it keeps") {
  const TempFolder temp;
  const Checkpoints checkpoints(temp.path());
  for (const Index step : {1, 2, 3}) save(checkpoints, step);
  flip_byte(checkpoints.folder_of(3) / "adapter.bin");
  const Quiet quiet;
  checkpoints.rotate(3, std::nullopt);
  CHECK(quiet.text.empty());
  checkpoints.rotate(2, std::nullopt);
  CHECK(quiet.text == concat("keeping all checkpoints, since the newest does not read back: ",
                             (checkpoints.folder_of(3) / "adapter.bin").native(),
                             ": its checksum is not that of what was written\n"));
  CHECK(checkpoints.steps() == std::vector<Index>{1, 2, 3});
  std::filesystem::remove_all(checkpoints.folder());
  checkpoints.rotate(0, std::nullopt);  // of none
}

TEST_CASE("checkpoint: what is passed over, in the way or gone back from is told by its folder") {
  const TempFolder temp;
  const Checkpoints checkpoints(temp.path());
  for (const Index step : {2, 4, 6}) save(checkpoints, step);
  flip_byte(checkpoints.folder_of(6) / "adapter.bin");
  io::write_file(checkpoints.folder() / "checkpoint-9", std::string_view("a file"));
  const Quiet quiet;
  CHECK(checkpoints.newest()->state.step == 4);
  CHECK(quiet.text == concat("skipping ", checkpoints.folder_of(6).native(), ": ",
                             (checkpoints.folder_of(6) / "adapter.bin").native(),
                             ": its checksum is not that of what was written\n"));
  CHECK(test::message_of<ConfigError>([&] { checkpoints.expect_places(8, 9); }) ==
        concat("key output_dir: ", checkpoints.folder_of(9).native(),
               " is in the way: it is no folder; move it elsewhere"));
  CHECK_NOTHROW(checkpoints.expect_places(0, 8));
  CHECK_NOTHROW(checkpoints.expect_places(9, 20));
}

TEST_CASE("checkpoint: of those past a step the step itself stays, and what goes is told") {
  const TempFolder temp;
  const Checkpoints checkpoints(temp.path());
  for (const Index step : {2, 4, 6}) save(checkpoints, step);
  const Quiet quiet;
  checkpoints.remove_past(4);
  CHECK(checkpoints.steps() == std::vector<Index>{2, 4});
  CHECK(quiet.text == concat("removing ", checkpoints.folder_of(6).native(),
                             ", which lies past step 4 that this run has gone back to\n"));
}

TEST_CASE("checkpoint: what was unfinished goes, if it has a checkpoint's name") {
  const TempFolder temp;
  const Checkpoints checkpoints(temp.path());
  save(checkpoints, 1);
  const auto left = [&](const char* name) {
    const io::Path path = io::temporary_name(checkpoints.folder() / name, io::Temporary::writing);
    io::create_folders(path);
    return path;
  };
  const io::Path own = left("checkpoint-2"), odd = left("checkpoint-02"), other = left("model");
  checkpoints.recover();
  CHECK_FALSE(io::is_there(own));
  CHECK(io::is_there(odd));
  CHECK(io::is_there(other));
  CHECK(checkpoints.steps() == std::vector<Index>{1});
}

}  // namespace checkpoint_test
