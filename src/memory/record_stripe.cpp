#include "memory/record_stripe.hpp"

#include <algorithm>
#include <new>

namespace idempotency {
inline namespace v0 {
namespace detail {

namespace {

[[noreturn]] void throw_no_memory() {
  throw Error(Errc::store_full,
              "the process has no memory for the record; lower MemoryStoreOptions::max_bytes");
}

std::byte* make_block(const RecordParts& parts) {
  std::byte* block = RecordBlock::make(parts);
  if (block == nullptr) throw_no_memory();
  if (!SlotTable::can_hold(block)) {
    RecordBlock::free(block);
    throw Error(
        Errc::store_refused,
        "the memory store cannot use an allocator that gives pointers of more than 48 bits");
  }
  return block;
}

}  // namespace

RecordStripe::~RecordStripe() {
  for (std::size_t index = 0; index < table_.capacity(); ++index) {
    if (std::byte* block = table_.at(index)) RecordBlock::free(block);
  }
}

std::size_t RecordStripe::find(std::uint64_t hash, std::string_view key) const {
  return table_.find(hash,
                     [key](const std::byte* block) { return RecordBlock::key(block) == key; });
}

MemoryBudget::Grant RecordStripe::insert(MemoryBudget& budget, const ByteHash& hash_of_key,
                                         std::uint64_t hash, const RecordParts& parts) {
  const std::size_t record_bytes = RecordBlock::heap_bytes(parts);
  const std::size_t table_bytes = table_.must_grow() ? table_.bytes_to_grow() : 0;
  if (budget.take(share, record_bytes + table_bytes) == MemoryBudget::Grant::refused) {
    return MemoryBudget::Grant::refused;
  }
  std::byte* block = nullptr;
  try {
    block = make_block(parts);
    if (table_bytes != 0) {
      table_.grow([&](const std::byte* other) { return hash_of_key(RecordBlock::key(other)); });
      hand_ = 0;
      round_earliest_ = never;
    }
  } catch (const std::bad_alloc&) {
    RecordBlock::free(block);
    budget.give_back(share, record_bytes + table_bytes);
    throw_no_memory();
  } catch (...) {
    budget.give_back(share, record_bytes + table_bytes);
    throw;
  }
  table_.insert(hash, block);
  return MemoryBudget::Grant::granted;
}

void RecordStripe::replace(MemoryBudget& budget, std::size_t index, const RecordParts& parts) {
  std::byte* old = table_.at(index);
  std::byte* block = make_block(parts);
  const std::size_t old_bytes = RecordBlock::heap_bytes(RecordBlock::read(old));
  const std::size_t new_bytes = RecordBlock::heap_bytes(parts);
  if (new_bytes > old_bytes) budget.take_regardless(share, new_bytes - old_bytes);
  if (new_bytes < old_bytes) budget.give_back(share, old_bytes - new_bytes);
  table_.replace(index, block);
  RecordBlock::free(old);
  note(RecordBlock::expires_at(block));
}

std::size_t RecordStripe::sweep(MemoryBudget& budget, const ByteHash& hash_of_key, Timestamp now,
                                SweepLimits limits) noexcept {
  std::size_t removed = 0;
  for (std::size_t looked = 0; looked < limits.slots && may_hold_expired(now); ++looked) {
    if (hand_ >= table_.capacity()) {
      hand_ = 0;
      earliest_ = std::exchange(round_earliest_, never);
      continue;
    }
    std::byte* block = table_.at(hand_);
    const Timestamp expires_at = block == nullptr ? never : RecordBlock::expires_at(block);
    if (expires_at > now) {
      round_earliest_ = std::min(round_earliest_, expires_at);
      ++hand_;
      continue;
    }
    if (removed == limits.records) break;
    const std::size_t bytes = RecordBlock::heap_bytes(RecordBlock::read(block));
    table_.erase(hand_,
                 [&](const std::byte* other) { return hash_of_key(RecordBlock::key(other)); });
    RecordBlock::free(block);
    budget.give_back(share, bytes);
    ++removed;
  }
  return removed;
}

void RecordStripe::note(Timestamp expires_at) noexcept {
  earliest_ = std::min(earliest_, expires_at);
  round_earliest_ = std::min(round_earliest_, expires_at);
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
