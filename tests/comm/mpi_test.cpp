// Ranks that are processes of MPI: this program, which the test starts again by mpirun, as many times as there are
// ranks.

#include <doctest/doctest.h>

#include "support/effort.hpp"

#if defined(LORA_WITH_MPI)

#  include <algorithm>
#  include <array>
#  include <chrono>
#  include <cstddef>
#  include <cstdio>
#  include <cstdlib>
#  include <filesystem>
#  include <functional>
#  include <numeric>
#  include <span>
#  include <string>
#  include <thread>
#  include <vector>

#  include "lora/comm/facts.hpp"
#  include "lora/comm/mpi.hpp"
#  include "lora/cpu/runtime/device.hpp"
#  include "support/message_of.hpp"
#  include "support/program.hpp"

namespace mpi_test {

using namespace lora;
using namespace lora::test;
using comm::Mpi;

namespace {

constexpr const char* done = "this rank has come to its end";
constexpr const char* variable = "LORA_TEST_RANK_OF";  // the name of the test case that started a rank

/// f() as each of so many ranks, by MPI that has begun; a check that fails in one of them fails here.
void by_ranks(int ranks, const std::string& name, const std::function<void()>& f) {
  if (const char* const own = std::getenv(variable); own != nullptr) {
    REQUIRE(own == name);
    int provided = 0;
    REQUIRE(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) == MPI_SUCCESS);
    f();
    CHECK(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS);  // the communicator of a program stays its own
    CHECK(MPI_Finalize() == MPI_SUCCESS);
    std::puts(done);
    return;
  }
  const std::string own = std::filesystem::read_symlink("/proc/self/exe").native();
  const bool open_mpi = run_program("mpirun", {"--version"}).output.find("Open MPI") != std::string::npos;
  const char* const words =
      open_mpi ? "--allow-run-as-root --oversubscribe --mca btl_vader_single_copy_mechanism none" : "";
  std::string pattern = name;
  std::replace(pattern.begin(), pattern.end(), ',', '?');  // which would end it
  const auto outcome = run_program(concat(variable, "=", shell_word(name), " mpirun ", words, " -n ", ranks, " ",
                                          shell_word(own), " ", shell_word("--test-case=" + pattern)),
                                   {});
  CAPTURE(outcome.output);
  CAPTURE(outcome.errors);
  CHECK(outcome.status == 0);
  int ended = 0;
  for (std::size_t at = 0; (at = outcome.output.find(done, at)) != std::string::npos; ++at) ++ended;
  CHECK(ended == ranks);
}

std::byte value_of(int rank, Index at) { return static_cast<std::byte>(41 * rank + at % 251); }

/// Bytes of which rank r has those of [begins[r], begins[r + 1]).
bool gathers(Mpi& mpi, const std::vector<Index>& begins) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(begins.back()));
  const auto rank = static_cast<std::size_t>(mpi.rank());
  for (Index i = begins[rank]; i < begins[rank + 1]; ++i) bytes[static_cast<std::size_t>(i)] = value_of(mpi.rank(), i);
  mpi.gather_on_host(bytes, begins);
  for (int r = 0; r < mpi.size(); ++r)
    for (Index i = begins[static_cast<std::size_t>(r)]; i < begins[static_cast<std::size_t>(r) + 1]; ++i)
      if (bytes[static_cast<std::size_t>(i)] != value_of(r, i)) return false;
  return true;
}

}  // namespace

TEST_CASE("mpi: bytes go in pieces that MPI can count, however many there are") {
  using Sizes = std::vector<std::size_t>;
  CHECK(comm::pieces_of(0, 4) == Sizes{});
  CHECK(comm::pieces_of(3, 4) == Sizes{3});
  CHECK(comm::pieces_of(4, 4) == Sizes{4});
  CHECK(comm::pieces_of(9, 4) == Sizes{4, 4, 1});
  constexpr std::size_t gib = std::size_t{1} << 30;
  for (const std::size_t bytes : {gib, 2 * gib - 1, 2 * gib, 4 * gib + 7, 100 * gib}) {
    const Sizes sizes = comm::pieces_of(bytes, Mpi::longest_piece);
    CHECK(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}) == bytes);
    for (const std::size_t size : sizes) CHECK(size <= std::size_t{0x7FFFFFFF});
  }
}

TEST_CASE("mpi: ranks gather and exchange what each has, in one piece or in many") {
  by_ranks(3, "mpi: ranks gather and exchange what each has, in one piece or in many", [] {
    for (const std::size_t longest : {std::size_t{0}, std::size_t{7}, std::size_t{1000}, Mpi::longest_piece}) {
      CAPTURE(longest);
      Mpi mpi(MPI_COMM_WORLD, longest);
      REQUIRE(mpi.size() == 3);
      CHECK_FALSE(mpi.host().empty());
      CHECK(mpi.traffic().sent_bytes == 0);
      const std::vector<Index> begins{0, 0, 1001, 3500};  // of the first nothing
      CHECK(gathers(mpi, begins));
      const Index own[] = {0, 1001, 2499};
      CHECK(mpi.traffic().sent_bytes == static_cast<double>(2 * own[mpi.rank()]));
      CHECK(mpi.traffic().received_bytes == static_cast<double>(3500 - own[mpi.rank()]));
      // Four slabs, two of which the last rank has; each gets its range of all of them.
      const std::vector<int> owners{2, 0, 1, 2};
      std::vector<std::vector<std::byte>> slabs, parts(4);
      std::vector<std::span<std::byte>> mine, taken;
      for (std::size_t i = 0; i < owners.size(); ++i) {
        if (owners[i] == mpi.rank()) {
          auto& slab = slabs.emplace_back(3500);
          for (Index at = 0; at < 3500; ++at) slab[static_cast<std::size_t>(at)] = value_of(static_cast<int>(i), at);
        }
        parts[i].resize(static_cast<std::size_t>(own[mpi.rank()]));
        taken.emplace_back(parts[i]);
      }
      for (auto& slab : slabs) mine.emplace_back(slab);
      mpi.exchange_on_host(mine, owners, begins, taken);
      bool right = true;
      for (std::size_t i = 0; i < owners.size(); ++i)
        for (Index at = 0; at < own[mpi.rank()]; ++at)
          right = right && parts[i][static_cast<std::size_t>(at)] ==
                               value_of(static_cast<int>(i), begins[static_cast<std::size_t>(mpi.rank())] + at);
      CHECK(right);
      CHECK(mpi.agree(1u << mpi.rank()) == 7);
      CHECK(comm::text_of(mpi, 1, concat("said by ", mpi.rank())) == "said by 1");
    }
  });
}

TEST_CASE("mpi: a program that has begun MPI hands a communicator of its own over, and goes on to use it") {
  by_ranks(4, "mpi: a program that has begun MPI hands a communicator of its own over, and goes on to use it", [] {
    int world = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &world);
    // Two halves, whose ranks are the other way round.
    MPI_Comm half = MPI_COMM_NULL;
    REQUIRE(MPI_Comm_split(MPI_COMM_WORLD, world / 2, -world, &half) == MPI_SUCCESS);
    {
      Mpi mpi(half);
      CHECK(mpi.size() == 2);
      CHECK(mpi.rank() == 1 - world % 2);
      // A message of the program's, with the number that gathers have, waits meanwhile.
      const int other = 1 - mpi.rank();
      double sent = 100 + world, came = 0;
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Isend(&sent, 1, MPI_DOUBLE, other, 0, half, &request);
      CHECK(mpi.all_gather(std::span<const double>(std::array{0.5 + world})) ==
            (world / 2 == 0 ? std::vector<double>{1.5, 0.5} : std::vector<double>{3.5, 2.5}));
      MPI_Recv(&came, 1, MPI_DOUBLE, other, 0, half, MPI_STATUS_IGNORE);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      CHECK(came == 100 + (world ^ 1));
      cpu::Device dev(1);
      comm::OnHost<cpu::Device> ranks(mpi);
      CHECK(ranks.agree(1u << mpi.rank()) == 3);
    }
    int of_program = 0;
    CHECK(MPI_Comm_size(half, &of_program) == MPI_SUCCESS);  // it is not freed
    CHECK(of_program == 2);
    MPI_Comm_free(&half);
  });
}

TEST_CASE("mpi: a rank that sends or takes nothing is named once the time is over") {
  by_ranks(2, "mpi: a rank that sends or takes nothing is named once the time is over", [] {
    // Whoever waits too long is not waited for; its buffers live until the other has come.
    std::vector<std::byte> bytes(std::size_t{1} << 22);
    const auto count = std::ssize(bytes);
    Mpi sends(MPI_COMM_WORLD), takes(MPI_COMM_WORLD);
    for (Mpi* const mpi : {&sends, &takes}) {
      const std::vector<Index> begins =
          mpi == &sends ? std::vector<Index>{0, 0, count} : std::vector<Index>{0, count, count};
      if (mpi->rank() == 1) {
        MPI_Barrier(MPI_COMM_WORLD);  // until the other has given up
        mpi->gather_on_host(bytes, begins);
        continue;
      }
      mpi->wait_at_most(std::chrono::duration<double>(0.25));
      const auto begin = std::chrono::steady_clock::now();
      CHECK(message_of<Error>([&] { mpi->gather_on_host(bytes, begins); }) ==
            concat("rank 1 ", mpi == &sends ? "sent" : "took",
                   " nothing for 0.25 s: it has ended, hangs, or is at other work than this one"));
      const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      CHECK(took >= 0.25);
      CHECK(took < 60);
      MPI_Barrier(MPI_COMM_WORLD);
    }
    // What was posted is over before the memory goes.
    MPI_Barrier(MPI_COMM_WORLD);
  });
}

}  // namespace mpi_test

#else

TEST_CASE("mpi: ranks that are processes") { lora::test::skipped("comm: ranks that are processes, for want of MPI"); }

#endif
