#include "idempotency/operations/purger.hpp"

#include <algorithm>
#include <utility>

#include "operations/pauses.hpp"

namespace idempotency {
inline namespace v0 {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

constexpr std::size_t largest_batch = 100'000;
constexpr milliseconds longest_span = std::chrono::hours{24 * 365};

[[noreturn]] void refuse(const char* sentence) { throw Error(Errc::invalid_argument, sentence); }

PurgerOptions checked(PurgerOptions options) {
  if (options.batch < 1 || options.batch > largest_batch) {
    refuse("PurgerOptions: a batch is from 1 to 100000 records");
  }
  if (options.pause < milliseconds{0} || options.pause > longest_span) {
    refuse("PurgerOptions: the pause between batches is not negative");
  }
  if (options.first_back_off < milliseconds{1} ||
      options.longest_back_off < options.first_back_off ||
      options.longest_back_off > longest_span) {
    refuse(
        "PurgerOptions: the first pause after a failure is at least 1 ms, and the longest is not "
        "shorter");
  }
  if (options.max_failures_in_a_row < 1) refuse("PurgerOptions: no limit is 0");
  if (options.every < milliseconds{1}) {
    refuse("PurgerOptions: the pause between passes is at least 1 ms");
  }
  return options;
}

AnyAdminStore* admin_of(AnyStore& store) {
  if (store.admin() == nullptr) refuse("Purger: the store behind this AnyStore cannot purge");
  return store.admin();
}

milliseconds since(steady_clock::time_point start) {
  return std::chrono::duration_cast<milliseconds>(steady_clock::now() - start);
}

}  // namespace

Purger::Purger(AnyStore& store, PurgerOptions options)
    : store_(admin_of(store)), options_(checked(std::move(options))) {}

Purger::Purger(std::unique_ptr<AnyStore> own, PurgerOptions options)
    : own_(std::move(own)), store_(admin_of(*own_)), options_(checked(std::move(options))) {}

bool Purger::remove_batch(PurgeReport& report, std::uint32_t& failures,
                          const std::stop_token& stop) {
  const auto start = steady_clock::now();
  try {
    const std::size_t removed = store_->purge(options_.batch);
    failures = 0;
    ++report.batches;
    report.removed += removed;
    report.longest_batch = std::max(report.longest_batch, since(start));
    if (removed < options_.batch) return false;
    detail::wait_or_stop_for(stop, options_.pause);
    return true;
  } catch (const Error& error) {
    if (!error.safe_to_retry()) throw;
    ++report.failures;
    if (++failures >= options_.max_failures_in_a_row) {
      report.ended_early = true;
      return false;
    }
    const milliseconds most =
        detail::longest_pause_after(failures, options_.first_back_off, options_.longest_back_off);
    detail::wait_or_stop_for(stop, most - detail::any_up_to(most / 2));
    return true;
  }
}

PurgeReport Purger::run_once(const std::stop_token& stop) {
  const auto start = steady_clock::now();
  PurgeReport report;
  std::uint32_t failures = 0;
  bool is_more = true;
  while (is_more && !report.ended_early) {
    if (stop.stop_requested()) {
      report.ended_early = true;
      break;
    }
    const std::uint64_t batches = report.batches;
    is_more = remove_batch(report, failures, stop);
    report.took = since(start);
    if (options_.on_batch && report.batches > batches) options_.on_batch(report);
  }
  return report;
}

void Purger::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const PurgeReport report = run_once(stop);
    if (options_.on_pass) options_.on_pass(report);
    detail::wait_or_stop_for(stop, options_.every);
  }
}

}  // namespace v0
}  // namespace idempotency
