#pragma once

/// The first instruction set that this program was compiled for and the processor lacks, or null. Without this check
/// the program would die of an illegal instruction.
[[gnu::noinline]] inline const char* missing_processor_feature() {
#if defined(__x86_64__)
  __builtin_cpu_init();
#  ifdef __SSE4_2__
  if (!__builtin_cpu_supports("sse4.2")) return "sse4.2";
#  endif
#  ifdef __AVX__
  if (!__builtin_cpu_supports("avx")) return "avx";
#  endif
#  ifdef __AVX2__
  if (!__builtin_cpu_supports("avx2")) return "avx2";
#  endif
#  ifdef __FMA__
  if (!__builtin_cpu_supports("fma")) return "fma";
#  endif
#  ifdef __BMI2__
  if (!__builtin_cpu_supports("bmi2")) return "bmi2";
#  endif
#  ifdef __AVX512F__
  if (!__builtin_cpu_supports("avx512f")) return "avx512f";
#  endif
#  ifdef __AVX512BW__
  if (!__builtin_cpu_supports("avx512bw")) return "avx512bw";
#  endif
#  ifdef __AVX512DQ__
  if (!__builtin_cpu_supports("avx512dq")) return "avx512dq";
#  endif
#  ifdef __AVX512VL__
  if (!__builtin_cpu_supports("avx512vl")) return "avx512vl";
#  endif
#  ifdef __AVX512VNNI__
  if (!__builtin_cpu_supports("avx512vnni")) return "avx512vnni";
#  endif
#  ifdef __AVX512BF16__
  if (!__builtin_cpu_supports("avx512bf16")) return "avx512bf16";
#  endif
#endif
  return nullptr;
}
