#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/ascend/runtime/aligned.hpp"
#include "lora/ascend/runtime/device.hpp"
#include "lora/ascend/runtime/hccl.hpp"
#include "lora/comm/facts.hpp"
#include "lora/comm/on_host.hpp"
#include "lora/tensor/arena.hpp"
#include "lora/tensor/tensor.hpp"

namespace lora::ascend {

/// Ranks with an NPU each, which HCCL connects: numbers of devices go from card to card; what hosts tell each other
/// goes by `hosts`. HCCL moves bytes and adds nothing up, so that none of its settings for a fixed order matters. All
/// that it is given goes into Stream::links: of one stream the order is the same on all ranks.
class Group final : public comm::Communicator<Device> {
 public:
  /// Every rank makes it at about the same time, before it takes the memory that models need: HCCL keeps twice
  /// HCCL_BUFFSIZE of the card. The links are made here, by a first gather. `dev` and `hosts` outlive this.
  /// Throws   ConfigError for the environment and where two ranks have the same NPU, DeviceError where HCCL is missing
  ///          or fails on any rank
  Group(Device& dev, comm::HostRanks& hosts, std::chrono::duration<double> timeout)
      : dev_(dev), hosts_(hosts), hccl_(opened(timeout.count())) {
    expect_own_npus();
    // Else the device waits for what HCCL waits for, and hides why it fails.
    dev_.wait_at_least(timeout.count() + 60);
    try {
      connect();
      warm_up();
    } catch (...) {
      abandon();
      throw;
    }
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  /// After an error nothing is waited for: others may not come any more, and what is queued would wait for them.
  ~Group() override {
    if (comm_ == nullptr) return;
    if (std::uncaught_exceptions() > 0) {
      abandon();
      return;
    }
    try {
      dev_.synchronize();
      (void)hosts_.agree(0);  // what others still have queued may need this one
      (void)hccl_.functions.HcclCommDestroy(comm_);
    } catch (...) {  // the device or another rank is lost, and has been told so
    }
  }

  int rank() const override { return hosts_.rank(); }
  int size() const override { return hosts_.size(); }
  std::string host() const override { return hosts_.host(); }
  comm::Traffic traffic() const override {
    comm::Traffic all = hosts_.traffic();
    all.sent_bytes += traffic_.sent_bytes;
    all.received_bytes += traffic_.received_bytes;
    return all;
  }

  void abandon() noexcept override { dev_.abandon("another rank, or this one, has failed"); }

  /// Throws   DeviceError where HCCL has met an error meanwhile
  void gather_on_host(std::span<std::byte> bytes, std::span<const Index> begins) override {
    expect_no_error();
    hosts_.gather_on_host(bytes, begins);
  }

  /// How many bytes of each rank a gather moves at a time.
  static constexpr Index piece = Index{4} << 20;

 protected:
  /// HCCL gathers as much from each rank, so that parts go through scratch, piece by piece. What comes beside kernels
  /// has scratch of its own, since theirs is used again in the order of Stream::compute.
  /// Throws   ShapeError for parts that begin inside of a number of four bytes, beside kernels for those that begin
  ///          where the runtime does not copy
  void gather(Device& dev, Bytes slab, std::span<const Index> begins, Stream then) override {
    const bool beside = then != Stream::compute;
    expect_multiples(begins, beside ? copied_on : static_cast<Index>(sizeof(Word)));
    Index longest = 0;
    for (int r = 0; r < size(); ++r) longest = std::max(longest, count_of(begins, r));
    if (beside && staging_.view().empty()) staging_ = Tensor<Device, std::byte>(dev, size() + 1, piece);
    dev.enter();
    if (beside) {
      wait_and_release(dev, Stream::links, dev.record(Stream::compute));
      wait_and_release(dev, Stream::links, dev.record(then));
    }
    for (Index from = 0; from < longest; from += piece) {
      const Index count = padded(std::min(piece, longest - from));
      const Arena::Scope scope(dev.arena());
      const Bytes room =
          beside ? Bytes(staging_.view().data(), size() + 1, count) : scratch<std::byte>(dev, size() + 1, count);
      const Bytes own = room.row_slice(size(), 1), all = room.row_slice(0, size());
      const auto move = [&](const Bytes& part, const Bytes& to) {
        if (beside)
          dev.copy_on_device(to.data(), part.data(), static_cast<std::size_t>(part.size()), Stream::links);
        else
          copy(part, to);
      };
      if (const Bytes part = part_of(slab, begins, rank(), from, count); !part.empty())
        move(part, own.col_slice(0, part.size()));
      if (!beside) wait_and_release(dev, Stream::links, dev.record(Stream::compute));
      check(hccl_.functions.HcclAllGather(own.data(), all.data(), static_cast<std::uint64_t>(count),
                                          HCCL_DATA_TYPE_INT8, comm_, dev.handle(Stream::links)),
            "HcclAllGather");
      if (!beside) wait_and_release(dev, Stream::compute, dev.record(Stream::links));
      for (int r = 0; r < size(); ++r)
        if (const Bytes part = part_of(slab, begins, r, from, count); r != rank() && !part.empty())
          move(all.row_slice(r, 1).col_slice(0, part.size()), part);
      traffic_.sent_bytes += static_cast<double>(count * (size() - 1));
      traffic_.received_bytes += static_cast<double>(count * (size() - 1));
    }
    if (beside) wait_and_release(dev, then, dev.record(Stream::links));
  }

  /// In rounds, in each of which a rank gives its next slab, so that no two of its pieces go to the same rank at once.
  /// Throws   ShapeError for parts that don't begin where the runtime copies
  void exchange_bytes(Device& dev, std::span<const Bytes> mine, std::span<const int> owners,
                      std::span<const Index> begins, std::span<const Bytes> parts, Stream then) override {
    expect_multiples(begins, copied_on);
    std::vector<std::vector<std::size_t>> slabs(static_cast<std::size_t>(size()));  // of each rank
    for (std::size_t i = 0; i < owners.size(); ++i) slabs[static_cast<std::size_t>(owners[i])].push_back(i);
    const auto own = static_cast<std::size_t>(rank());
    const Index own_count = count_of(begins, rank());
    for (std::size_t k = 0; k < mine.size() && own_count > 0; ++k)
      copy(part_of(mine[k], begins, rank(), 0, own_count), parts[slabs[own][k]]);
    dev.enter();
    wait_and_release(dev, Stream::links, dev.record(Stream::compute));
    std::size_t rounds = 0;
    for (const auto& of_rank : slabs) rounds = std::max(rounds, of_rank.size());
    for (std::size_t k = 0; k < rounds; ++k) {
      std::vector<HcclSendRecvItem> items;
      const auto add = [&](HcclSendRecvType type, const Bytes& bytes, int other) {
        if (bytes.empty()) return;
        items.push_back({type, bytes.data(), static_cast<std::uint64_t>(bytes.size()), HCCL_DATA_TYPE_INT8,
                         static_cast<std::uint32_t>(other)});
        (type == HCCL_SEND ? traffic_.sent_bytes : traffic_.received_bytes) += static_cast<double>(bytes.size());
      };
      for (int other = 0; other < size(); ++other) {
        if (other == rank()) continue;
        if (k < mine.size()) add(HCCL_SEND, part_of(mine[k], begins, other, 0, count_of(begins, other)), other);
        const auto& theirs = slabs[static_cast<std::size_t>(other)];
        if (k < theirs.size() && own_count > 0) add(HCCL_RECV, parts[theirs[k]], other);
      }
      if (!items.empty())
        check(hccl_.functions.HcclBatchSendRecv(items.data(), static_cast<std::uint32_t>(items.size()), comm_,
                                                dev.handle(Stream::links)),
              "HcclBatchSendRecv");
    }
    if (then != Stream::links) wait_and_release(dev, then, dev.record(Stream::links));
  }

 private:
  static constexpr Index alignment = 512;  // of what HCCL is given, as others do
  static constexpr Index copied_on = 64;   // bytes, on which the runtime's copies begin

  using Word = std::int32_t;

  void expect_multiples(std::span<const Index> begins, Index of) const {
    for (int r = 0; r < size(); ++r)
      if (const Index begin = begins[static_cast<std::size_t>(r)]; begin % of != 0)
        fail<ShapeError>("[ascend] the part of rank ", r, " begins at byte ", begin, "; expected a multiple of ", of);
  }
  static bool is_copied(const Bytes& bytes) { return reinterpret_cast<std::uintptr_t>(bytes.data()) % copied_on == 0; }
  static View<Device, Word> words_of(const Bytes& bytes) {
    return {reinterpret_cast<Word*>(bytes.data()), bytes.size() / static_cast<Index>(sizeof(Word))};
  }
  static Index padded(Index bytes) { return (bytes + alignment - 1) / alignment * alignment; }
  static Index count_of(std::span<const Index> begins, int rank) {
    const auto at = static_cast<std::size_t>(rank);
    return begins[at + 1] - begins[at];
  }
  // Of a rank's part at most `count` bytes from `from` on.
  static Bytes part_of(const Bytes& slab, std::span<const Index> begins, int rank, Index from, Index count) {
    const Index left = count_of(begins, rank) - from;
    if (left <= 0) return {};
    return slab.col_slice(begins[static_cast<std::size_t>(rank)] + from, std::min(left, count));
  }
  // By the runtime, or where it does not copy, between parts of a few numbers, by operators.
  void copy(const Bytes& from, const Bytes& to) {
    if (is_copied(from) && is_copied(to))
      return dev_.copy_on_device(to.data(), from.data(), static_cast<std::size_t>(from.size()));
    const Arena::Scope scope(dev_.arena());
    const View<Device, const Word> numbers = aligned(dev_, View<Device, const Word>(words_of(from)));
    write_aligned(dev_, words_of(to), false, false,
                  [&](const View<Device, Word>& place) { ascend::copy(dev_, numbers, place); });
  }

  void check(HcclResult result, std::string_view call) const {
    if (result != HCCL_SUCCESS)
      fail<DeviceError>("[ascend] NPU ", dev_.settings().id, ": ", call, ": ", reason_of(result));
  }
  std::string reason_of(HcclResult result) const {
    const char* const name = hccl_.functions.HcclGetErrorString(result);
    return concat(name != nullptr ? name : "an error without a name", ", ",
                  std::string_view(dev_.toolkit().runtime.describe(result)));
  }
  void expect_no_error() const {
    if (comm_ == nullptr) return;
    HcclResult error = HCCL_SUCCESS;
    check(hccl_.functions.HcclGetCommAsyncError(comm_, &error), "HcclGetCommAsyncError");
    check(error, "the links between NPUs");
  }

  static Hccl opened(double seconds) {
    check_hccl_environment();
    set_hccl_timeouts(seconds);
    return {};
  }

  // Two processes on one card would wait for each other.
  void expect_own_npus() {
    std::vector<std::string> cards;
    for (int r = 0; r < size(); ++r)
      cards.push_back(comm::text_of(hosts_, r,
                                    concat("NPU ", std::string_view(number_on_host(dev_.settings().id)), " on ",
                                           std::string_view(hosts_.host_and_boot()))));
    for (int r = 0; r < size(); ++r)
      for (int earlier = 0; earlier < r; ++earlier)
        if (const auto at = static_cast<std::size_t>(r); cards[at] == cards[static_cast<std::size_t>(earlier)])
          fail<ConfigError>("ranks ", earlier, " and ", r, " both have ",
                            std::string_view(cards[at]).substr(0, cards[at].find('\n')),
                            "; each needs one of its own: device ascend, or ascend:0,1,..., and a launcher that tells ",
                            "each process its LOCAL_RANK");
  }

  // A process counts the NPUs that ASCEND_RT_VISIBLE_DEVICES shows it; another may be shown others.
  static std::string number_on_host(std::int32_t id) {
    const char* const shown = std::getenv("ASCEND_RT_VISIBLE_DEVICES");
    std::string_view rest = shown != nullptr ? shown : "";
    for (std::int32_t i = 0; i < id && !rest.empty(); ++i)
      rest.remove_prefix(std::min(rest.find(',') + 1, rest.size()));
    return rest.empty() ? concat(id) : std::string(rest.substr(0, rest.find(',')));
  }

  // What the first rank can't tell, since it has failed, all others are told.
  void connect() {
    HcclRootInfo root{};
    std::string told;
    const auto tell = [&](const std::string& problem) {
      if (!problem.empty()) told = concat("!rank ", rank(), " on ", std::string_view(host()), ": ", problem);
    };
    dev_.enter();
    tell(hccl_.problem().empty() ? std::string() : concat("HCCL can't be used: ", hccl_.problem()));
    for (int r = 0; r < size(); ++r)
      if (const std::string problem = comm::text_of(hosts_, r, told); !problem.empty())
        fail<DeviceError>("[ascend] ", std::string_view(problem).substr(1), "; it comes with the toolkit (CANN), and ",
                          "several NPUs need it");
    if (rank() == 0) {
      if (const HcclResult result = hccl_.functions.HcclGetRootInfo(&root); result != HCCL_SUCCESS)
        tell(concat("HcclGetRootInfo: ", std::string_view(reason_of(result))));
      else
        told.assign(root.internal, sizeof root.internal);
    }
    told = comm::text_of(hosts_, 0, told);
    if (told.size() != sizeof root.internal)
      fail<DeviceError>("[ascend] ", std::string_view(told).substr(1), "; HCCL_IF_IP or HCCL_SOCKET_IFNAME choose the ",
                        "network, HCCL_IF_BASE_PORT the ports");
    std::memcpy(root.internal, told.data(), told.size());
    check(hccl_.functions.HcclCommInitRootInfo(static_cast<std::uint32_t>(size()), &root,
                                               static_cast<std::uint32_t>(rank()), &comm_),
          "HcclCommInitRootInfo");
  }

  // The first calls make the links, which takes long.
  void warm_up() {
    constexpr Index apart = copied_on / static_cast<Index>(sizeof(std::int32_t));
    const Arena::Scope scope(dev_.arena());
    const View<Device, std::int32_t> numbers = scratch<std::int32_t>(dev_, 1, apart * size());
    const std::vector<std::int32_t> own(static_cast<std::size_t>(apart), rank());
    dev_.copy_from_host(numbers.col_slice(apart * rank(), apart).data(), own.data(), own.size() * sizeof own[0]);
    all_gather(dev_, numbers, comm::even_parts(size(), apart, size()));
    std::vector<std::int32_t> seen(static_cast<std::size_t>(numbers.size()));
    dev_.copy_to_host(seen.data(), numbers.data(), seen.size() * sizeof(std::int32_t));
    for (int r = 0; r < size(); ++r)
      if (seen[static_cast<std::size_t>(apart * r)] != r)
        fail<DeviceError>("[ascend] NPU ", dev_.settings().id, ": the first numbers that HCCL brought from rank ", r,
                          " are not those that it sent");
    traffic_ = {};
  }

  Device& dev_;
  comm::HostRanks& hosts_;
  Hccl hccl_;
  HcclComm comm_ = nullptr;
  comm::Traffic traffic_;
  Tensor<Device, std::byte> staging_;  // of gathers beside kernels: (size + 1, piece), once there are some
};

}  // namespace lora::ascend
