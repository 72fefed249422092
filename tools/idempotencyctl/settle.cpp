#include "settle.hpp"

#include <fstream>
#include <iterator>
#include <utility>

#include "text.hpp"

namespace idempotencyctl {

using std::chrono::milliseconds;
using Verdict = idem::Resolution::Verdict;

namespace {

/// `call()`, and once more when its answer was lost: both are one change.
template <class Call>
auto twice(Call call) {
  try {
    return call();
  } catch (const idem::Error& error) {
    if (!error.safe_to_retry()) throw;
  }
  return call();
}

/// Writes the audit line of a change of one record, also when its outcome is not known.
template <class Call>
bool change_record(const Audit& audit, idem::AnyStore& store, Change change,
                   const idem::Record& seen, Call call) {
  change.key = seen.key.text();
  change.before = to_json(seen);
  const auto note = [&](const std::string& outcome) {
    change.outcome = outcome;
    try {
      const std::optional<idem::Record> after = store.find(seen.key);
      change.after = after ? to_json(*after) : Json(nullptr);
    } catch (const idem::Error&) {
      change.after = "unknown: the store did not answer";
    }
    audit.write(change);
  };
  try {
    const bool changed = twice(call);
    note(changed ? "changed" : "nothing was changed");
    return changed;
  } catch (const idem::Error& error) {
    note(error.effect_possible() ? "unknown: " + std::string(error.what())
                                 : "nothing was changed: " + std::string(error.what()));
    throw;
  }
}

std::string bytes_of(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream) throw Ending(Exit::usage, "cannot read " + printable(file));
  return bytes;
}

milliseconds retention_of(const ResolveOptions& options, const idem::Key& key) {
  if (!options.retention.empty()) return parse_duration(options.retention);
  if (options.policies.empty()) return idem::Resolution{}.retention;
  const auto policy = idem::PolicyTable::from_json_file(options.policies).find(key.type());
  return options.failed ? policy.failure_retention : policy.success_retention;
}

}  // namespace

TooEarly::TooEarly(milliseconds left)
    : Ending(Exit::refused,
             "nothing was changed: it is too early to say retry, a request may still be on its "
             "way. It can be believed in " +
                 to_text(left) + "; before that only with --force") {}

void check_reason(const std::string& reason) {
  if (reason.empty()) throw Ending(Exit::usage, "say why: --reason TEXT stands in the audit");
}

idem::Resolution resolution_of(const ResolveOptions& options, const idem::Key& key) {
  const int verdicts =
      (options.success ? 1 : 0) + (options.retry ? 1 : 0) + (options.failed ? 1 : 0);
  if (verdicts != 1) throw Ending(Exit::usage, "one of --success, --failed TEXT and --retry");
  const bool has_result = !options.result_file.empty() || options.result_text.has_value();
  if (has_result && !options.success) throw Ending(Exit::usage, "only a success has a result");
  if (options.force && !options.retry) throw Ending(Exit::usage, "--force is for --retry");
  idem::Resolution resolution;
  resolution.retention = retention_of(options, key);
  if (resolution.retention < milliseconds{1}) {
    throw Ending(Exit::usage, "the record must be kept for at least 1ms");
  }
  if (options.success) {
    resolution.verdict = Verdict::succeeded;
    if (!options.result_file.empty()) resolution.result = bytes_of(options.result_file);
    if (options.result_text) resolution.result = idem::encode_result(*options.result_text);
  } else if (options.failed) {
    resolution.verdict = Verdict::failed;
    resolution.reason = options.failed->substr(0, idem::Failure::max_reason_bytes);
  } else {
    resolution.verdict = Verdict::retry;
  }
  return resolution;
}

void check_unsettled(const idem::Record& seen, idem::Timestamp now) {
  if (idem::is_unsettled(seen, now)) return;
  if (seen.state == idem::RecordState::processing) {
    throw Ending(
        Exit::refused,
        "nothing was changed: its owner is alive, or nobody can say that it is not: " +
            (seen.lease_until ? "its lease runs for another " + to_text(*seen.lease_until - now)
                              : std::string("its lease has no end")) +
            ". `release` takes it from an owner that hangs");
  }
  throw Ending(Exit::refused, "nothing was changed: the record is " +
                                  std::string(idem::to_string(seen.state)) +
                                  ", and what is finished stays as it is");
}

void check_retry(const idem::Record& seen, idem::Timestamp now, milliseconds margin) {
  const bool is_uncertain = seen.state == idem::RecordState::uncertain;
  const idem::Timestamp silent_since =
      is_uncertain ? seen.updated_at : seen.lease_until.value_or(now);
  const milliseconds left = silent_since + margin - now;
  if (left > milliseconds{0}) throw TooEarly(left);
}

void check_release(const idem::Record& seen, Doubt doubt) {
  if (seen.state != idem::RecordState::processing) {
    throw Ending(Exit::refused, "nothing was changed: the record is " +
                                    std::string(idem::to_string(seen.state)) +
                                    "; only one that is processing can be released");
  }
  const bool holds = seen.mode == idem::RecordMode::hold || seen.effect_marked;
  if (holds && doubt == Doubt::refuse) {
    throw Ending(
        Exit::refused,
        "nothing was changed: its effect may have happened, and releasing it lets it happen "
        "again. Find out and use `resolve`, or say --force");
  }
}

bool settle(const Audit& audit, idem::AnyStore& store, const idem::Record& seen,
            const idem::Resolution& resolution, Change change) {
  return change_record(audit, store, std::move(change), seen, [&] {
    return store.admin()->resolve(seen, resolution) == idem::WriteOutcome::stored;
  });
}

bool release_seen(const Audit& audit, idem::AnyStore& store, const idem::Record& seen,
                  Change change) {
  const milliseconds retention = idem::Policy{}.failure_retention;
  return change_record(audit, store, std::move(change), seen, [&] {
    const auto outcome = store.release(seen.key, seen.ownership, retention);
    if (outcome == idem::ReleaseOutcome::unknown) {
      throw idem::Error(idem::Errc::store_reply_lost, "the store did not answer");
    }
    return outcome == idem::ReleaseOutcome::released;
  });
}

}  // namespace idempotencyctl
