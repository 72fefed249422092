#include "idempotency/operations/reconciler.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "operations/pauses.hpp"
#include "operations/reconcile_claim.hpp"

namespace idempotency {
inline namespace v0 {

using detail::ClaimAttempt;
using detail::ReconcileClaim;
using detail::ReconcileClaims;
using std::chrono::milliseconds;

namespace {

constexpr std::size_t page_size = 500;
constexpr milliseconds day = std::chrono::hours{24};
constexpr milliseconds longest_span = std::chrono::hours{24 * 365 * 10};
constexpr std::chrono::hours between_sweeps{1};
/// Beyond the limit: for answers that came too early. More of them, and the processes that ask keep dying.
constexpr std::uint32_t spare_questions = 3;

[[noreturn]] void refuse(const char* sentence) { throw Error(Errc::invalid_argument, sentence); }

void check(const ReconcilerOptions& options) {
  if (options.margin < milliseconds{0} || options.margin > 30 * day) {
    refuse("ReconcilerOptions: the margin is from 0 to 30 days");
  }
  if (options.lease < milliseconds{10} || options.lease > day) {
    refuse("ReconcilerOptions: the lease is from 10 ms to 1 day");
  }
  if (options.first_pause < milliseconds{1} || options.longest_pause < options.first_pause ||
      options.longest_pause > longest_span) {
    refuse("ReconcilerOptions: the first pause is at least 1 ms, and the longest is not shorter");
  }
  if (options.parked_for < milliseconds{1} || options.parked_for > longest_span) {
    refuse("ReconcilerOptions: a record is parked for 1 ms to 10 years");
  }
  if (options.max_questions < 1 || options.max_records < 1 || options.max_failures_in_a_row < 1) {
    refuse("ReconcilerOptions: no limit is 0");
  }
  if (options.every < milliseconds{1}) {
    refuse("ReconcilerOptions: the pause between passes is at least 1 ms");
  }
}

std::size_t& count_of(ReconcileStep step, ReconcileReport& report) noexcept {
  switch (step) {
    case ReconcileStep::succeeded:
      return report.succeeded;
    case ReconcileStep::failed:
      return report.failed;
    case ReconcileStep::released:
      return report.released;
    case ReconcileStep::too_early:
      return report.too_early;
    case ReconcileStep::still_unknown:
      return report.still_unknown;
    case ReconcileStep::threw:
      return report.threw;
    case ReconcileStep::moved:
      return report.moved;
    case ReconcileStep::parked:
      return report.parked;
    case ReconcileStep::store_failed:
      return report.store_failed;
    case ReconcileStep::unreadable:
      return report.unreadable;
  }
  return report.store_failed;
}

bool is_settled(ReconcileStep step) noexcept {
  return step == ReconcileStep::succeeded || step == ReconcileStep::failed ||
         step == ReconcileStep::released;
}

/// What was found out about one record, and what that comes to.
struct Answer {
  ReconcileStep step = ReconcileStep::still_unknown;
  std::string why = {};
  std::optional<Resolution> resolution = std::nullopt;  ///< of an answer that settles
  milliseconds rest_at_least{0};
};

Answer unknown(ReconcileStep step, std::string why) {
  return {.step = step, .why = std::move(why)};
}

}  // namespace

std::string_view to_string(ReconcileStep step) noexcept {
  switch (step) {
    case ReconcileStep::succeeded:
      return "succeeded";
    case ReconcileStep::failed:
      return "failed";
    case ReconcileStep::released:
      return "released";
    case ReconcileStep::too_early:
      return "too_early";
    case ReconcileStep::still_unknown:
      return "still_unknown";
    case ReconcileStep::threw:
      return "threw";
    case ReconcileStep::moved:
      return "moved";
    case ReconcileStep::parked:
      return "parked";
    case ReconcileStep::store_failed:
      return "store_failed";
    case ReconcileStep::unreadable:
      return "unreadable";
  }
  return "unknown";
}

class Reconciler::Impl {
 public:
  Impl(AnyStore& store, Resolve resolve, ReconcilerOptions options)
      : store_(&store), resolve_(std::move(resolve)), options_(std::move(options)), claims_(store) {
    check(options_);
    if (!resolve_) refuse("Reconciler: there is nobody to ask");
    if (store.admin() == nullptr) {
      refuse("Reconciler: the store behind this AnyStore cannot list and settle records");
    }
  }

  [[nodiscard]] const ReconcilerOptions& options() const noexcept { return options_; }

  ReconcileReport run_once(const std::stop_token& stop) {
    const std::scoped_lock lock(mutex_);
    now_.reset();
    ReconcileReport report;
    sweep();
    const std::vector<Record> open = find_open(stop, report);
    std::size_t failures_in_a_row = 0;
    for (const Record& record : open) {
      if (stop.stop_requested() || failures_in_a_row >= options_.max_failures_in_a_row) {
        report.ended_early = true;
        break;
      }
      const std::optional<ReconcileStep> step = treat(record, report);
      if (!step) continue;  // at rest
      const bool failed = *step == ReconcileStep::threw || *step == ReconcileStep::store_failed;
      failures_in_a_row = failed ? failures_in_a_row + 1 : 0;
    }
    return report;
  }

 private:
  [[nodiscard]] Timestamp now() {
    if (!now_) now_ = claims_.now();
    return *now_;
  }

  void sweep() {
    const auto time = std::chrono::steady_clock::now();
    if (swept_at_ && time - *swept_at_ < between_sweeps) return;
    swept_at_.reset();
    if (claims_.sweep()) swept_at_ = time;
  }

  void close(const ReconcileClaim& claim) {
    if (!claims_.close(claim)) swept_at_.reset();
  }

  void note_rest(const ReconcileClaim& claim, milliseconds span) {
    rests_.insert_or_assign(claim.key.text(), claim.taken_at + span);
  }

  /// The oldest open records that are not known to rest.
  std::vector<Record> find_open(const std::stop_token& stop, ReconcileReport& report) {
    if (!rests_.empty()) {
      std::erase_if(rests_, [now = now()](const auto& rest) { return rest.second <= now; });
    }
    std::vector<Record> open;
    unreadable_.clear();
    if (options_.types.empty()) add_open(std::nullopt, stop, open, report);
    for (const std::string& type : options_.types)
      add_open(type, stop, open, report);
    keep_oldest(open);
    std::sort(open.begin(), open.end(), is_older);
    return open;
  }

  void add_open(const std::optional<std::string>& type, const std::stop_token& stop,
                std::vector<Record>& open, ReconcileReport& report) {
    for (const RecordState state : {RecordState::uncertain, RecordState::processing}) {
      std::string cursor;
      do {
        RecordPage page = store_->admin()->list({.type = type, .state = state}, cursor, page_size);
        for (Record& record : page.records) {
          if (!is_open(record)) continue;
          ++report.unsettled;
          if (!rests_.empty() && rests_.contains(detail::claim_key_of(record).text())) {
            ++report.resting;
            continue;
          }
          open.push_back(std::move(record));
        }
        for (const RecordPage::Unreadable& one : page.unreadable)
          note_unreadable(one, report);
        if (open.size() >= 2 * options_.max_records) keep_oldest(open);
        cursor = page.cursor;
      } while (!cursor.empty() && !stop.stop_requested());
    }
  }

  /// A listing of each state may find it.
  void note_unreadable(const RecordPage::Unreadable& one, ReconcileReport& report) {
    if (!unreadable_.insert(one.key.text()).second) return;
    ++report.unreadable;
    if (report.notes.size() < ReconcileReport::max_notes) {
      report.notes.push_back({one.key, ReconcileStep::unreadable, one.why});
    }
  }

  [[nodiscard]] static bool is_open(const Record& record, Timestamp now) noexcept {
    return detail::silent_since(record) && is_unsettled(record, now);
  }
  [[nodiscard]] bool is_open(const Record& record) {
    if (!detail::silent_since(record)) return false;  // most are, and need no time
    return record.state == RecordState::uncertain || is_open(record, now());
  }

  static bool is_older(const Record& a, const Record& b) noexcept {
    return detail::silent_since(a) < detail::silent_since(b);
  }
  void keep_oldest(std::vector<Record>& records) const {
    if (records.size() <= options_.max_records) return;
    const auto end = records.begin() + static_cast<std::ptrdiff_t>(options_.max_records);
    std::nth_element(records.begin(), end, records.end(), is_older);
    records.erase(end, records.end());
  }

  /// Nothing when it is at rest.
  std::optional<ReconcileStep> treat(const Record& listed, ReconcileReport& report) {
    try {
      const Key key = detail::claim_key_of(listed);
      const ClaimAttempt attempt = claims_.take(key, listed.key.text(), options_.lease);
      if (!attempt.claim) {
        ++report.resting;
        rests_.insert_or_assign(key.text(), now() + attempt.rest);
        return std::nullopt;
      }
      return treat(listed, *attempt.claim, report);
    } catch (const Error& error) {
      return tell(report, {listed, ReconcileStep::store_failed, error.what(), 0, options_.lease});
    }
  }

  ReconcileStep treat(const Record& listed, const ReconcileClaim& claim, ReconcileReport& report) {
    const std::optional<Record> seen =
        detail::twice([&] { return store_->find(listed.key); });  // before anybody is asked
    if (!seen || !is_open(*seen, claim.taken_at) || detail::claim_key_of(*seen) != claim.key) {
      close(claim);
      return tell(report, {listed, ReconcileStep::moved, {}, claim.questions, {}});
    }
    const bool asks = claim.questions <= options_.max_questions + spare_questions;
    Answer answer = asks ? ask(*seen, claim, report)
                         : unknown(ReconcileStep::still_unknown, "its questions do not end");
    if (answer.resolution) {
      const auto settle = [&] { return store_->admin()->resolve(*seen, *answer.resolution); };
      if (detail::twice(settle) == WriteOutcome::lost) answer.step = ReconcileStep::moved;
    }
    if (answer.resolution) {
      close(claim);
      return tell(report, {*seen, answer.step, answer.why, claim.questions, {}});
    }
    // An answer that came too early is one: it is believed next time.
    const bool is_last = claim.questions >= options_.max_questions;
    if (is_last && answer.step != ReconcileStep::too_early && park(*seen, claim, answer)) {
      note_rest(claim, options_.parked_for);
      return tell(report,
                  {*seen, ReconcileStep::parked, answer.why, claim.questions, options_.parked_for});
    }
    const milliseconds pause = pause_after(claim.questions, answer);
    claims_.rest(claim, pause);
    note_rest(claim, pause);
    return tell(report, {*seen, answer.step, answer.why, claim.questions, pause});
  }

  Answer ask(const Record& seen, const ReconcileClaim& claim, ReconcileReport& report) {
    ++report.asked;
    try {
      return judge(seen, claim, resolve_(seen));
    } catch (
        const abi::__forced_unwind&) {  // thread cancellation: nothing may catch it but to go on
      throw;
    } catch (const std::exception& exception) {
      return unknown(ReconcileStep::threw, exception.what());
    } catch (...) {
      return unknown(ReconcileStep::threw, "resolve threw what is no std::exception");
    }
  }

  [[nodiscard]] Answer judge(const Record& seen, const ReconcileClaim& claim,
                             const Finding& finding) const {
    const Policy& policy = options_.policies.find(seen.key.type());
    Answer answer;
    Resolution resolution{.retention = policy.success_retention};
    switch (finding.kind()) {
      case Finding::Kind::succeeded:
        answer.step = ReconcileStep::succeeded;
        resolution.verdict = Resolution::Verdict::succeeded;
        resolution.result = finding.result();
        break;
      case Finding::Kind::failed:
        answer.step = ReconcileStep::failed;
        answer.why = finding.text().substr(0, Failure::max_reason_bytes);
        resolution.verdict = Resolution::Verdict::failed;
        resolution.reason = answer.why;
        resolution.retention = policy.failure_retention;
        break;
      case Finding::Kind::retry: {
        const milliseconds left = *detail::silent_since(seen) + options_.margin - claim.taken_at;
        if (left > milliseconds{0}) {
          answer.rest_at_least = left;
          answer.step = ReconcileStep::too_early;
          answer.why = "a request may still be on its way";
          return answer;
        }
        answer.step = ReconcileStep::released;
        resolution.verdict = Resolution::Verdict::retry;
        break;
      }
      case Finding::Kind::still_unknown:
        return unknown(ReconcileStep::still_unknown, finding.text());
    }
    answer.resolution = std::move(resolution);
    return answer;
  }

  /// False when the alert threw: then nobody may know of it, and it is called again after a pause.
  bool park(const Record& seen, const ReconcileClaim& claim, Answer& answer) {
    try {
      if (options_.alert) {
        options_.alert(
            {seen, ReconcileStep::parked, answer.why, claim.questions, options_.parked_for});
      }
    } catch (const abi::__forced_unwind&) {
      throw;
    } catch (const std::exception& exception) {
      answer = unknown(ReconcileStep::threw, std::string("the alert: ") + exception.what());
      return false;
    } catch (...) {
      answer = unknown(ReconcileStep::threw, "the alert threw what is no std::exception");
      return false;
    }
    claims_.park(claim, answer.why, options_.parked_for);
    return true;
  }

  [[nodiscard]] milliseconds pause_after(std::uint32_t questions, const Answer& answer) const {
    const milliseconds most =
        detail::longest_pause_after(questions, options_.first_pause, options_.longest_pause);
    return std::max({milliseconds{1}, answer.rest_at_least, detail::any_up_to(most)});
  }

  ReconcileStep tell(ReconcileReport& report, const ReconcileEvent& event) const {
    ++count_of(event.step, report);
    if (!is_settled(event.step) && report.notes.size() < ReconcileReport::max_notes) {
      report.notes.push_back({event.record.key, event.step, std::string(event.why)});
    }
    if (options_.on_record) options_.on_record(event);
    return event.step;
  }

  AnyStore* store_;
  Resolve resolve_;
  ReconcilerOptions options_;
  ReconcileClaims claims_;
  std::mutex mutex_;  ///< held for a pass
  std::optional<Timestamp> now_;
  std::optional<std::chrono::steady_clock::time_point> swept_at_;
  std::unordered_map<std::string, Timestamp> rests_;  ///< until when, by the store's clock
  std::unordered_set<std::string> unreadable_;        ///< in this pass
};

Reconciler::Reconciler(AnyStore& store, Resolve resolve, ReconcilerOptions options)
    : impl_(std::make_unique<Impl>(store, std::move(resolve), std::move(options))) {}

Reconciler::Reconciler(std::unique_ptr<AnyStore> own, Resolve resolve, ReconcilerOptions options)
    : own_(std::move(own)),
      impl_(std::make_unique<Impl>(*own_, std::move(resolve), std::move(options))) {}

Reconciler::~Reconciler() = default;

ReconcileReport Reconciler::run_once(const std::stop_token& stop) { return impl_->run_once(stop); }

void Reconciler::run(const std::stop_token& stop) {
  const ReconcilerOptions& options = impl_->options();
  std::uint32_t failures = 0;
  while (!stop.stop_requested()) {
    milliseconds pause = options.every;
    try {
      const ReconcileReport report = run_once(stop);
      failures = 0;
      if (options.on_pass) options.on_pass(report);
    } catch (const Error& error) {
      if (!error.safe_to_retry()) throw;
      const milliseconds most = detail::longest_pause_after(
          ++failures, options.every, std::max(options.every, options.longest_pause));
      pause = std::max(options.every / 2, detail::any_up_to(most));
    }
    detail::wait_or_stop_for(stop, pause);
  }
}

}  // namespace v0
}  // namespace idempotency
