#pragma once

#include "lora/core/config.hpp"
#include "lora/run/environment.hpp"

namespace lora::run::detail {

LORA_INLINE double status_gib(std::string_view field) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(field)) return std::strtod(line.c_str() + field.size(), nullptr) / 0x1p20;
  return 0;
}

}  // namespace lora::run::detail

namespace lora::run {

LORA_INLINE std::string quoted_command(std::span<const char* const> words) {
  std::string line;
  for (const std::string_view word : words) {
    if (!line.empty()) line += ' ';
    const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) ||
             std::string_view("_-./=,:+@%").find(c) != std::string_view::npos;
    });
    if (plain) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) c == '\'' ? line += "'\\''" : line += c;
    line += '\'';
  }
  return line;
}

LORA_INLINE std::string describe_build() {
  std::string features;
  const auto add = [&](std::string_view name) { features += concat(features.empty() ? "" : " ", name); };
#if defined(__x86_64__)
  add("x86-64");
#elif defined(__aarch64__)
  add("aarch64");
#endif
#ifdef __SSE4_2__
  add("sse4.2");
#endif
#ifdef __AVX2__
  add("avx2");
#endif
#ifdef __FMA__
  add("fma");
#endif
#ifdef __AVX512F__
  add("avx512f");
#endif
#ifdef __AVX512BF16__
  add("avx512bf16");
#endif
#ifdef __AMX_BF16__
  add("amx-bf16");
#endif
#ifdef __ARM_FEATURE_BF16
  add("bf16");
#endif
#ifdef __clang__
  return concat("lora ", LORA_VERSION, " for ", features, ", clang ", __clang_version__);
#else
  return concat("lora ", LORA_VERSION, " for ", features, ", gcc ", __VERSION__);
#endif
}

LORA_INLINE std::string time_text() {
  char text[32] = "";
  const std::time_t now = std::time(nullptr);
  std::tm fields{};
  if (gmtime_r(&now, &fields) != nullptr) (void)std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &fields);
  return text;
}

LORA_INLINE std::string describe_environment(int threads) {
  utsname system{};
  uname(&system);
  return concat("build: ", describe_build(), "\nsystem: ", std::string_view(system.sysname), " ",
                std::string_view(system.release), " ", std::string_view(system.machine),
                "\nprocessor: ", cpu::processor_name(), "\nthreads: ", threads, " of ", cpu::available_threads(),
                "\nmemory: ", std::round(static_cast<double>(cpu::total_memory()) / 0x1p30 * 10) / 10, " GiB\n");
}

}  // namespace lora::run
