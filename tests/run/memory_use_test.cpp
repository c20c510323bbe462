#include "lora/run/memory_use.hpp"

#include <doctest/doctest.h>

#include <sstream>
#include <string>

#include "lora/instantiate.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace memory_use_test {

using namespace lora;
using namespace lora::run;

TEST_CASE("memory use: each row of the table has its own number in MiB") {
  MemoryUse use;
  use.pages = {.model_files = 1 * 0x1p20, .other_files = 2 * 0x1p20, .own = 300 * 0x1p20};
  use.activations = 4 * 0x1p20;
  use.workspace = 5 * 0x1p20;
  use.trained = 6 * 0x1p20;
  use.gradients = 7 * 0x1p20;
  use.optimizer = 8.25 * 0x1p20;
  use.peak = 400 * 0x1p20;
  CHECK(to_text(use) ==
        "| memory | MiB |\n|---|---:|\n| weights, pages of mapped files | 1.0 |\n"
        "| activations kept for backward, at most | 4.0 |\n| workspace, at most | 5.0 |\n| what trains | 6.0 |\n"
        "| gradients | 7.0 |\n| optimizer | 8.2 |\n| tokenizer, data, libraries' own and the rest | 269.8 |\n"
        "| program and libraries, pages of mapped files | 2.0 |\n| resident now | 303.0 |\n"
        "| resident at the peak | 400.0 |\n");
  CHECK(use.other() == 269.75 * 0x1p20);
  use.pages.own = 30 * 0x1p20;  // less than what was counted, some of which is not resident
  CHECK(use.other() == 0);
}

TEST_CASE("memory use: in a type of 16 bits what trains has a copy beside its values in float32") {
  const test::TempFolder temp = test::TempFolder::in_memory();
  test::write_random_model(temp / "model", {});
  const auto source = model::Source::open(temp / "model");
  const auto used = [&]<class T>(T) {
    cpu::Device dev(1);
    model::Decoder<cpu::Device, T> decoder(dev, source);
    model::AdapterConfig adapter;
    adapter.rank = 2;
    adapter.targets = {"q_proj"};
    decoder.attach(dev, adapter);
    {
      const Arena::SavedScope saved(dev.arena());
      (void)save<float>(dev, 3, 1000);
      const Arena::Scope scope(dev.arena());
      (void)scratch<float>(dev, 1, 500);
    }
    const MemoryUse use = memory_use(dev, decoder);
    CHECK(use.activations == static_cast<double>(dev.arena().peak_saved()));
    CHECK(use.workspace == static_cast<double>(dev.arena().peak_scratch()));
    CHECK(use.activations > use.workspace);
    CHECK(use.workspace >= 2000);
    return use;
  };
  const MemoryUse single = used(0.0f), half = used(bf16());
  constexpr double places = 4 * 1024;  // A and B of 2 layers, each of which begins with a block of an optimizer's step
  for (const MemoryUse& use : {single, half}) {
    CHECK(use.gradients == 4 * places);
    CHECK(use.optimizer == 8 * places);
    CHECK(use.pages.own > 0);
    CHECK(use.peak == doctest::Approx(peak_memory_gib() * 0x1p30).epsilon(0.1));
  }
  CHECK(single.trained == 4 * places);
  CHECK(half.trained == 6 * places);
}

TEST_CASE("memory use: what was written to pages of a file is the process's own, and no mapping is nothing") {
  std::istringstream none("");
  CHECK(resident_pages(none).own == 0);
  std::istringstream smaps(
      "7f0000000000-7f0040000000 rw-p 00000000 08:01 43 /models/model.gguf\n"
      "Rss:  100 kB\nAnonymous: 30 kB\n"
      "7f0040000000-7f0050000000 r--p 00000000 08:01 44 /models/model.gguf.txt\n"
      "Rss:  7 kB\nAnonymous: 0 kB\n"
      "7f0050000000-7f0060000000 rw-p 00000000 00:00 0 [heap]\n"
      "Rss:  50 kB\nAnonymous: 20 kB\n");
  const ResidentPages pages = resident_pages(smaps);
  CHECK(pages.model_files == 70 * 1024);
  CHECK(pages.other_files == 7 * 1024);
  CHECK(pages.own == (30 + 50) * 1024);
}

}  // namespace memory_use_test
