// Where models and adapters are found: paths, folders of runs, the cache of the Hugging Face tools; and what is said of
// those that are not what a key wants.

#include "lora/inputs/find_model.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "lora/inputs/model_files.hpp"
#include "support/environment.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace find_model_test {

using namespace lora;
using namespace lora::inputs;
using lora::test::holds;
using lora::test::message_of;
using test::Environment;

namespace {

std::string said_of(const std::string& name) {
  return message_of<IoError>([&] { find_model(name); });
}

void write(const io::Path& path, std::string_view text = "{}") {
  io::create_folders(path.parent_path());
  io::write_file(path, text);
}

/// What is said of a folder as model_name_or_path.
std::string said_of_model(const io::Path& path) {
  settings::Config config;
  config.model_name_or_path = path.native();
  return message_of<ConfigError>([&] { open_source(config); });
}
std::string said_of_adapter(const io::Path& path) {
  return message_of<ConfigError>([&] { find_adapter(path.native()); });
}

}  // namespace

TEST_CASE("find_model: a path is itself, a hub name its snapshot in the cache") {
  const test::TempFolder folder;
  const Environment cache("HF_HUB_CACHE", folder.path().native());
  CHECK(find_model(folder.path().native()) == folder.path());
  const auto cached = folder / "models--owner--some-model";
  CHECK(holds(said_of("owner/some-model"), "and not in the local cache " + folder.path().native() +
                                               "; to download it: hf download owner/some-model"));
  const auto snapshot = cached / "snapshots" / "0123abc";
  io::create_folders(snapshot);
  write(cached / "refs" / "main", "0123abc\n");
  CHECK(find_model("owner/some-model") == snapshot);
  write(cached / "refs" / "main", "another");
  CHECK(said_of("owner/some-model") == "owner/some-model: in the local cache " + (cached / "refs" / "main").native() +
                                           " names the snapshot \"another\", which is not in " +
                                           (cached / "snapshots").native() +
                                           "; to download it again: hf download owner/some-model");
  write(cached / "refs" / "main", " \n");
  CHECK(holds(said_of("owner/some-model"), "names the snapshot \"\", which is not in "));
}

TEST_CASE("find_model: without refs/main the only snapshot is taken, and none or several are told") {
  const test::TempFolder folder;
  const Environment cache("HF_HUB_CACHE", folder.path().native());
  const auto snapshots = folder / "models--owner--some-model" / "snapshots";
  io::create_folders(snapshots);
  CHECK(said_of("owner/some-model") == "owner/some-model: the local cache has 0 snapshots in " + snapshots.native() +
                                           " and no " +
                                           (folder / "models--owner--some-model" / "refs" / "main").native() +
                                           " that names one; to download it again: hf download owner/some-model");
  io::create_folders(snapshots / "0123abc");
  write(snapshots / ".lock");
  CHECK(find_model("owner/some-model") == snapshots / "0123abc");
  io::create_folders(snapshots / "4567def");
  CHECK(holds(said_of("owner/some-model"), "the local cache has 2 snapshots in "));
  CHECK(holds(said_of("owner/some-model"), "refs/main that names one; to download it again: hf download owner/some-"));
}

TEST_CASE("find_model: a file of the cache whose content is missing was not downloaded completely") {
  const test::TempFolder folder;
  const Environment cache("HF_HUB_CACHE", folder.path().native());
  const auto cached = folder / "models--owner--some-model", snapshot = cached / "snapshots" / "0123abc";
  test::write_random_model(snapshot, {});
  settings::Config config;
  config.model_name_or_path = "owner/some-model";
  for (const char* name : {"model.safetensors", "config.json"}) {
    CAPTURE(std::string(name));
    std::filesystem::remove(snapshot / name);
    std::filesystem::create_symlink(io::Path("..") / ".." / "blobs" / "89ab", snapshot / name);
    CHECK(holds(
        message_of<IoError>([&] { open_source(config); }),
        concat("cannot open ", (snapshot / name).native(),
               ": it is a link to a file that does not exist: 89ab of the local cache was not downloaded completely")));
  }
}

TEST_CASE("find_model: the cache is where the environment says, never in the current folder") {
  const Environment user("HOME", "/u"), none("HF_HUB_CACHE", ""), older("HUGGINGFACE_HUB_CACHE", ""),
      no_home("HF_HOME", ""), no_cache("XDG_CACHE_HOME", "");
  using inputs::detail::hub_cache;
  CHECK(hub_cache() == "/u/.cache/huggingface/hub");
  const Environment cache("XDG_CACHE_HOME", "/c");
  CHECK(hub_cache() == "/c/huggingface/hub");
  const Environment home("HF_HOME", "~/h");
  CHECK(hub_cache() == "/u/h/hub");
  const Environment old("HUGGINGFACE_HUB_CACHE", "/old");
  CHECK(hub_cache() == "/old");
  const Environment hub("HF_HUB_CACHE", "~");
  CHECK(hub_cache() == "/u");
}

TEST_CASE("find_model: without any variable there is no cache, which is said") {
  const Environment user("HOME", ""), none("HF_HUB_CACHE", ""), older("HUGGINGFACE_HUB_CACHE", ""),
      no_home("HF_HOME", ""), no_cache("XDG_CACHE_HOME", "");
  CHECK_FALSE(inputs::detail::hub_cache());
  {  // which only a folder in the user's own would need
    const Environment cache("HF_HUB_CACHE", "/cache");
    CHECK(inputs::detail::hub_cache() == "/cache");
  }
  CHECK(said_of("owner/some-model") ==
        "owner/some-model: no such file or folder, and no local cache to look in: HF_HUB_CACHE, HF_HOME, "
        "XDG_CACHE_HOME and HOME are not set");
}

TEST_CASE("find_model: what is no hub name is only missing") {
  for (const char* name : {"/no/such/model", "./model", "a/b/c", "model.gguf", "owner/", "a b"}) {
    CAPTURE(name);
    CHECK(said_of(name) == std::string(name) + ": no such file or folder");
  }
}

TEST_CASE("find_model: the folder of a run stands for its final_model, as a model and as an adapter") {
  const test::TempFolder folder;
  test::Quiet quiet;
  const io::Path full = folder / "full", adapted = folder / "adapted";
  test::write_random_model(full / "final_model", {});
  write(full / "run_config.json");
  write(adapted / "final_model" / "adapter_config.json");
  CHECK(find_model(full.native()) == full / "final_model");
  CHECK(find_model((full / "final_model").native()) == full / "final_model");
  CHECK(name_of_result(full.native()) == (full / "final_model").native());
  CHECK(name_of_result((full / "final_model").native()) == (full / "final_model").native());
  CHECK(name_of_result("owner/some-model") == "owner/some-model");
  CHECK(find_adapter(adapted.native()) == adapted / "final_model");
  settings::Config config;
  config.model_name_or_path = full.native();
  CHECK(open_source(config).path() == full / "final_model");
  CHECK(quiet.text == full.native() + " is the folder of a run: its final_model is taken\n");
  // A model folder that has such a folder in it is a model.
  test::write_random_model(full, {});
  CHECK(find_model(full.native()) == full);
}

TEST_CASE("find_model: what is no model is told apart by what it holds") {
  const test::TempFolder folder;
  const io::Path adapter = folder / "adapter", run = folder / "run";
  write(adapter / "adapter_config.json", R"({"base_model_name_or_path": "some/base"})");
  write(adapter / "config.json");  // as of an adapter whose base ran with other rotary settings
  CHECK(said_of_model(adapter) ==
        "key model_name_or_path: given " + adapter.native() +
            ", which holds an adapter of the model some/base; allowed: a whole model, beside which an adapter is given "
            "as adapter_name_or_path");
  write(run / "final_model" / "adapter_config.json");
  CHECK(holds(said_of_model(run), ", whose final_model holds an adapter; allowed: a whole model"));
  write(folder / "part" / "trained.safetensors");
  CHECK(holds(said_of_model(folder / "part"), "holds those tensors alone that train, as a checkpoint"));
  io::create_folders(folder / "begun" / "checkpoints");
  CHECK(holds(said_of_model(folder / "begun"), "the folder of a run that has no final_model; allowed: a whole model"));
  CHECK(holds(said_of_adapter(folder / "begun"), "the folder of a run that has no final_model; allowed: an adapter"));
  // The newest of what could be meant is named; a folder without the file, or with another name, is none of them.
  for (const char* name : {"checkpoint-9", "checkpoint-10", "checkpoint-011"})
    write(folder / "begun" / "checkpoints" / name / "adapter_config.json");
  io::create_folders(folder / "begun" / "checkpoints" / "checkpoint-20");
  const std::string newest = (folder / "begun" / "checkpoints" / "checkpoint-10").native();
  CHECK(holds(said_of_adapter(folder / "begun"),
              "no final_model; allowed: an adapter folder, such as its newest "
              "checkpoint, " +
                  newest));
  const io::Path checkpoints = folder / "begun" / "checkpoints";
  CHECK(said_of_adapter(checkpoints) == "key adapter_name_or_path: given " + checkpoints.native() +
                                            ", which holds the checkpoints of a run; allowed: an adapter folder, such "
                                            "as its newest checkpoint, " +
                                            newest);
  CHECK(holds(said_of_model(checkpoints),
              ", which holds the checkpoints of a run; allowed: a whole model, beside which "
              "an adapter, such as the newest, " +
                  newest + ", is given as"));
  CHECK(holds(said_of_adapter(folder / "part"), ", which holds no adapter_config.json; allowed: an adapter folder"));
  CHECK(holds(said_of_adapter(adapter / "config.json"), ", which is no folder; allowed: an adapter folder"));
  // What has weights is a model, whatever else it has.
  test::write_random_model(adapter, {});
  CHECK(said_of_model(adapter) == "nothing was thrown");
}

TEST_CASE("find_model: one adapter is taken, no whole model and no list") {
  const test::TempFolder folder;
  test::write_random_model(folder / "run" / "final_model", {});
  for (const char* name : {"run", "run/final_model"})
    CHECK(holds(said_of_adapter(folder / name), "holds a whole model; allowed: an adapter folder"));
  for (const char* name : {"a", "b", "c,d"}) write(folder / name / "adapter_config.json");
  CHECK(find_adapter((folder / "c,d").native()) == folder / "c,d");
  CHECK(holds(said_of_adapter("x,y"), "given x,y, allowed: one adapter; hint: to use several, "));
  CHECK_THROWS_AS(find_adapter("x-y"), IoError);
  const std::string both = (folder / "a").native() + "," + (folder / "b").native();
  CHECK(
      said_of_adapter(both) ==
      "key adapter_name_or_path: given " + both +
          ", allowed: one adapter; hint: to use several, write one into the base with the command merge, and give what "
          "comes of it as model_name_or_path with the next");
}

TEST_CASE("find_model: what a folder is instead is told in full, with the key that it belongs to") {
  const test::TempFolder folder;
  const std::string run = (folder / "run").native(), part = (folder / "part").native();
  test::write_random_model(folder / "run" / "final_model", {});
  CHECK(said_of_adapter(run) == "key adapter_name_or_path: given " + run + ", but " + run +
                                    "/final_model holds a whole model; allowed: an adapter folder (a model is given "
                                    "as model_name_or_path)");
  write(folder / "part" / "trained.safetensors");
  CHECK(said_of_model(part) == "key model_name_or_path: given " + part +
                                   ", which holds those tensors alone that train, as a checkpoint; allowed: a whole "
                                   "model, such as the run's final_model");
  CHECK(said_of_adapter(part) ==
        "key adapter_name_or_path: given " + part + ", which holds no adapter_config.json; allowed: an adapter folder");
  const std::string begun = (folder / "begun").native();
  io::create_folders(folder / "begun" / "checkpoints");
  CHECK(said_of_model(begun) == "key model_name_or_path: given " + begun +
                                    ", which is the folder of a run that has no final_model; allowed: a whole model");
  CHECK(said_of_adapter(begun) ==
        "key adapter_name_or_path: given " + begun +
            ", which is the folder of a run that has no final_model; allowed: an adapter folder");
  write(folder / "begun" / "checkpoints" / "checkpoint-3" / "adapter_config.json");
  io::create_folders(folder / "stays" / "checkpoints");
  write(folder / "stays" / "config.json");  // a model that lacks its weights, whatever stands beside it
  CHECK_THROWS_AS(said_of_model(folder / "stays"), FormatError);
  const std::string checkpoints = begun + "/checkpoints";
  CHECK(said_of_model(checkpoints) ==
        "key model_name_or_path: given " + checkpoints +
            ", which holds the checkpoints of a run; allowed: a whole model, beside which an adapter, such as the "
            "newest, " +
            checkpoints + "/checkpoint-3, is given as adapter_name_or_path");
}

TEST_CASE("find_model: a folder is what it holds, by any file that says so, and else the run that it was") {
  for (const char* name : {"config.json", "adapter_config.json", "tokenizer.json", "tokenizer.model", "README.md"}) {
    CAPTURE(name);
    const test::TempFolder folder;
    io::create_folders(folder / "final_model");
    write(folder / name);
    CHECK(find_model(folder.path().native()) ==
          (std::string_view(name) == "README.md" ? folder / "final_model" : folder.path()));
  }
  for (const char* name : {"model.safetensors", "model.safetensors.index.json", "model.bin"}) {
    CAPTURE(name);
    const test::TempFolder folder;
    write(folder / name);
    const std::string said = said_of_adapter(folder.path());
    CHECK(holds(said, std::string_view(name) == "model.bin" ? ", which holds no adapter_config.json"
                                                            : " holds a whole model; allowed"));
  }
}

TEST_CASE("find_model: a hub name has letters, digits, hyphens, underscores and dots, and one slash at most") {
  const test::TempFolder folder;
  const Environment cache("HF_HUB_CACHE", folder.path().native());
  for (const std::string name : {"gpt2-x", "Qwen/Qwen3-0.6B", "a_b/c.d-e", "a"}) {
    CAPTURE(name);
    CHECK(said_of(name) == name + ": no such file or folder, and not in the local cache " + folder.path().native() +
                               "; to download it: hf download " + name);
  }
  for (const std::string name :
       {"", "/no-such", "a/", "a/b/c", ".a", "~a", "a.gguf", "a/b.gguf", "a b", "a:b", "a/\xC3\xA9"}) {
    CAPTURE(name);
    CHECK(said_of(name) == name + ": no such file or folder");
  }
  const Environment none("HF_HUB_CACHE", ""), older("HUGGINGFACE_HUB_CACHE", ""), user("HOME", "/u"),
      home("HF_HOME", "~x/h");
  CHECK(inputs::detail::hub_cache() == "~x/h/hub");  // another user's folder is not known
}

}  // namespace find_model_test
