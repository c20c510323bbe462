// fuzz NAME ...: the target of this name, with libFuzzer's arguments; where there is no fuzzer, with folders, whose
// files are each given to it once.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "fuzz/target.hpp"

namespace {
const fuzz::Target* chosen = nullptr;
}

const fuzz::Target* fuzz::Target::find(const char* name) {
  const Target* target = first_;
  while (target != nullptr && std::strcmp(target->name, name) != 0) target = target->next_;
  return target;
}

void fuzz::Target::print_names() {
  for (const Target* target = first_; target != nullptr; target = target->next_)
    std::fprintf(stderr, "  %s\n", target->name);
}

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

/// Takes the name from the arguments.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  chosen = *argc > 1 ? fuzz::Target::find((*argv)[1]) : nullptr;
  if (chosen == nullptr) {
    std::fprintf(stderr, "usage: fuzz NAME [ARGUMENT...], where NAME is one of\n");
    fuzz::Target::print_names();
    std::exit(2);
  }
  (*argv)[1] = (*argv)[0];
  ++*argv;
  --*argc;
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  chosen->run(data, size);
  return 0;
}

#ifndef LORA_FUZZING
int main(int argc, char** argv) {
  LLVMFuzzerInitialize(&argc, &argv);
  int count = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
      const std::vector<std::uint8_t> input(bytes.begin(), bytes.end());
      LLVMFuzzerTestOneInput(input.data(), input.size());
      ++count;
    }
  }
  std::printf("%d inputs\n", count);
  return count == 0 ? 1 : 0;
}
#endif
