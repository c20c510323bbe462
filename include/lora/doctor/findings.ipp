#pragma once

#include "lora/core/config.hpp"
#include "lora/doctor/findings.hpp"

namespace lora::doctor::detail {

/// The widest vectors that the processor has and this build does not use; empty where it uses them all.
LORA_INLINE std::string_view unused_instructions() {
#if defined(__x86_64__)
  __builtin_cpu_init();
#  ifndef __AVX512BF16__
  if (__builtin_cpu_supports("avx512bf16")) return "avx512bf16";
#  endif
#  ifndef __AVX512F__
  if (__builtin_cpu_supports("avx512f")) return "avx512f";
#  endif
#  ifndef __AVX2__
  if (__builtin_cpu_supports("avx2")) return "avx2";
#  endif
#endif
  return {};
}

/// The first word in brackets of a file such as "always [madvise] never"; empty where there is none.
LORA_INLINE std::string chosen_word(const std::string& path) {
  std::ifstream file(path);
  for (std::string word; file >> word;)
    if (word.starts_with('[') && word.ends_with(']')) return word.substr(1, word.size() - 2);
  return {};
}

LORA_INLINE Finding build_finding() {
  Finding finding{"build", Finding::State::ok, run::describe_build()};
  if (const auto unused = unused_instructions(); !unused.empty()) {
    finding.state = Finding::State::note;
    finding.found += concat("; the processor also has ", unused);
    finding.advice = "build it on this machine with 'cmake --preset release', which uses them";
  }
  return finding;
}

LORA_INLINE Finding threads_finding(const std::string& root) {
  const int available = cpu::available_threads(root);
  const auto all = static_cast<int>(std::thread::hardware_concurrency());
  Finding finding{"threads", Finding::State::ok, concat(available, available == 1 ? " thread" : " threads")};
  if (available >= all) return finding;
  finding.state = Finding::State::note;
  finding.found += concat(" of ", all, ": the process's affinity or a control group's quota allows no more");
  finding.advice = "start it with more processors (taskset, docker --cpus, the batch system's --cpus-per-task)";
  return finding;
}

LORA_INLINE Finding memory_finding(const std::string& root) {
  const auto total = static_cast<double>(cpu::total_memory(root)),
             free = static_cast<double>(cpu::available_memory(root));
  Finding finding{"memory", Finding::State::ok, concat(gib_text(free), " of ", gib_text(total), " are available")};
  if (free > total / 4) return finding;
  finding.state = Finding::State::note;
  finding.advice = "end other programs; memory_limit_gib and gradient_checkpointing make a run smaller";
  return finding;
}

LORA_INLINE Finding pages_finding(const std::string& root) {
  const std::string chosen = chosen_word(root + "/sys/kernel/mm/transparent_hugepage/enabled");
  const std::size_t bytes = cpu::large_page_bytes(root);
  Finding finding{"large pages", Finding::State::ok};
  if (bytes > 0 && (chosen == "always" || chosen == "madvise")) {
    finding.found = concat("of ", bytes >> 10u, " KiB, on request");
    return finding;
  }
  finding.state = Finding::State::note;
  finding.found =
      chosen.empty() ? "the system doesn't say that it has any" : concat("the system gives none (", chosen, ")");
  finding.advice = "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
  return finding;
}

LORA_INLINE Finding products_finding(cpu::Device& dev) {
  Finding finding{"products", Finding::State::ok, cpu::describe_products(dev)};
  if (cpu::gemm_engine<float>(dev) == cpu::GemmEngine::onednn) return finding;
  finding.state = Finding::State::note;
  finding.advice = "install oneDNN (Debian: libdnnl-dev) and build again: its products are faster";
  return finding;
}

LORA_INLINE Finding compression_finding() {
#ifdef LORA_WITH_ZLIB
  constexpr bool gzip = true;
#else
  constexpr bool gzip = false;
#endif
#ifdef LORA_WITH_ZSTD
  constexpr bool zstd = true;
#else
  constexpr bool zstd = false;
#endif
  Finding finding{"compressed data", Finding::State::ok,
                  concat("gzip ", gzip ? "yes" : "no", ", Zstandard ", zstd ? "yes" : "no")};
  if (gzip && zstd) return finding;
  finding.state = Finding::State::note;
  finding.advice = "install zlib and libzstd (Debian: zlib1g-dev, libzstd-dev) and build again";
  return finding;
}

LORA_INLINE Finding tables_finding() {
#ifdef LORA_WITH_CSV
  constexpr bool csv = true;
#else
  constexpr bool csv = false;
#endif
#ifdef LORA_WITH_PARQUET
  constexpr bool parquet = true;
#else
  constexpr bool parquet = false;
#endif
  Finding finding{"data files", Finding::State::ok,
                  concat("JSON, texts, ", csv ? "" : "no ", "CSV, ", parquet ? "" : "no ", "Parquet")};
  if (csv && parquet) return finding;
  finding.state = Finding::State::note;
  finding.advice =
      concat("install ", csv ? "" : "libcsv (Debian: libcsv-dev)", csv || parquet ? "" : ", for Parquet ",
             parquet ? "" : "Arrow's C++ libraries (docs/install.md tells from where)", " and build again");
  return finding;
}

LORA_INLINE Finding settings_finding() {
#ifdef LORA_WITH_YAML
  return {"settings files", Finding::State::ok, "JSON, YAML"};
#else
  return {"settings files", Finding::State::note, "JSON, no YAML",
          "install yaml-cpp (Debian: libyaml-cpp-dev) and build again"};
#endif
}

/// Whether files that are unpacked, and the tokens of long texts, have a place.
LORA_INLINE Finding temporary_finding() {
  Finding finding{"temporary folder", Finding::State::ok, io::scratch_folder().native()};
  try {
    const io::ScratchFile file("a test");
  } catch (const IoError& error) {
    finding.state = Finding::State::note;
    finding.found += concat(": ", std::string_view(error.what()));
    finding.advice = "set TMPDIR to a folder that can be written; compressed data and very long texts need it";
    return finding;
  }
  struct statvfs space {};
  if (::statvfs(io::scratch_folder().c_str(), &space) == 0)
    finding.found +=
        concat(", ", gib_text(static_cast<double>(space.f_bavail) * static_cast<double>(space.f_frsize)), " free");
  return finding;
}

}  // namespace lora::doctor::detail

namespace lora::doctor {

LORA_INLINE std::vector<Finding> examine(cpu::Device& dev, const std::string& root) {
  const std::string name = cpu::processor_name(root);
  return {detail::build_finding(),
          {"processor", Finding::State::ok, name.empty() ? "the system doesn't name it" : name},
          detail::threads_finding(root),
          detail::memory_finding(root),
          detail::pages_finding(root),
          detail::products_finding(dev),
          detail::tables_finding(),
          detail::compression_finding(),
          detail::settings_finding(),
          detail::temporary_finding()};
}

}  // namespace lora::doctor
