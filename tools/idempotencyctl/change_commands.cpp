#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <idempotency/operations/purger.hpp>
#include <iostream>
#include <iterator>
#include <vector>

#include "audit.hpp"
#include "commands.hpp"
#include "store_access.hpp"
#include "text.hpp"

namespace idempotencyctl {

using std::chrono::milliseconds;
using Verdict = idem::Resolution::Verdict;

namespace {

std::string bytes_of(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream) throw Ending(Exit::usage, "cannot read " + printable(file));
  return bytes;
}

idem::Record record_of(idem::AnyStore& store, const idem::Key& key) {
  std::optional<idem::Record> record = store.find(key);
  if (!record) throw Ending(Exit::absent, "there is no record of " + printable(key.text()));
  return *std::move(record);
}

void check_reason(const std::string& reason) {
  if (reason.empty()) throw Ending(Exit::usage, "say why: --reason TEXT stands in the audit");
}

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
bool change_record(const Audit& audit, idem::AnyStore& store, Change change, const idem::Key& key,
                   Call call) {
  const auto note = [&](const std::string& outcome) {
    change.outcome = outcome;
    try {
      const std::optional<idem::Record> after = store.find(key);
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

Exit tell(const Settings& settings, idem::AnyStore& store, const idem::Key& key, bool changed) {
  if (!changed) {
    throw Ending(Exit::refused, "nothing was changed: the record has moved; look at it again");
  }
  const std::optional<idem::Record> record = store.find(key);
  if (settings.json) {
    std::cout << line_of({{"changed", true}, {"record", record ? to_json(*record) : Json(nullptr)}})
              << std::endl;
  } else {
    std::cout << printable(key.text()) << " is "
              << (record ? std::string(idem::to_string(record->state)) : "gone") << " now"
              << std::endl;
  }
  return Exit::done;
}

milliseconds retention_of(const ResolveOptions& options, const idem::Key& key) {
  if (!options.retention.empty()) return parse_duration(options.retention);
  if (options.policies.empty()) return idem::Resolution{}.retention;
  const auto policy = idem::PolicyTable::from_json_file(options.policies).find(key.type());
  return options.failed ? policy.failure_retention : policy.success_retention;
}

idem::Resolution resolution_of(const ResolveOptions& options, const idem::Key& key) {
  const int verdicts =
      (options.success ? 1 : 0) + (options.retry ? 1 : 0) + (options.failed ? 1 : 0);
  if (verdicts != 1) throw Ending(Exit::usage, "one of --success, --failed TEXT and --retry");
  const bool has_result = !options.result_file.empty() || options.result_text.has_value();
  if (has_result && !options.success) throw Ending(Exit::usage, "only a success has a result");
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

std::string question_of(const idem::Record& record, const ResolveOptions& options) {
  std::string question = "Settle " + printable(record.key.text()) + ", which is " +
                         std::string(idem::to_string(record.state)) + " at fence " +
                         std::to_string(record.ownership.fence) + ", as ";
  if (options.failed) return question + "failed for good?";
  if (options.success) {
    const bool has_result = !options.result_file.empty() || options.result_text.has_value();
    return question + (has_result ? "succeeded, with a result?"
                                  : "succeeded, without a result (later calls get none)?");
  }
  return question +
         "not done, so that the next call runs it? Only when no request of it can be on its way "
         "any "
         "more.";
}

/// Shows how far a purge is, where a person looks at it.
std::function<void(const idem::PurgeReport&)> progress(const Settings& settings) {
  if (settings.json || ::isatty(STDERR_FILENO) == 0) return nullptr;
  return [](const idem::PurgeReport& report) {
    std::fprintf(stderr, "\r%llu removed", static_cast<unsigned long long>(report.removed));
    std::fflush(stderr);
  };
}

}  // namespace

Exit resolve(const Settings& settings, const ResolveOptions& options) {
  const idem::Key key = parse_key(options.key);
  check_reason(options.reason);
  const idem::Resolution resolution = resolution_of(options, key);
  const auto store = open(settings);
  const idem::Record seen = record_of(*store, key);
  if (options.fence != 0 && seen.ownership.fence != options.fence) {
    throw Ending(Exit::refused, "nothing was changed: the record is at fence " +
                                    std::to_string(seen.ownership.fence));
  }
  const bool open_state =
      seen.state == idem::RecordState::uncertain || seen.state == idem::RecordState::processing;
  if (!open_state) {
    throw Ending(Exit::refused, "nothing was changed: the record is " +
                                    std::string(idem::to_string(seen.state)) +
                                    ", and what is finished stays as it is");
  }
  const Audit audit(settings);
  confirm(settings, question_of(seen, options));
  const bool changed = change_record(
      audit, *store,
      {.command = "resolve", .key = key.text(), .why = options.reason, .before = to_json(seen)},
      key, [&] { return store->admin()->resolve(seen, resolution) == idem::WriteOutcome::stored; });
  return tell(settings, *store, key, changed);
}

Exit release(const Settings& settings, const ReleaseOptions& options) {
  const idem::Key key = parse_key(options.key);
  check_reason(options.reason);
  const auto store = open(settings);
  const idem::Record seen = record_of(*store, key);
  if (seen.state != idem::RecordState::processing) {
    throw Ending(Exit::refused, "nothing was changed: the record is " +
                                    std::string(idem::to_string(seen.state)) +
                                    "; only one that is processing can be released");
  }
  const bool holds = seen.mode == idem::RecordMode::hold || seen.effect_marked;
  if (holds && !options.force) {
    throw Ending(
        Exit::refused,
        "nothing was changed: its effect may have happened, and releasing it lets it happen "
        "again. Find out and use `resolve`, or say --force");
  }
  const Audit audit(settings);
  confirm(settings, "Take " + printable(key.text()) +
                        " from its owner, which may be at work, so that the next call runs it?");
  const milliseconds retention = idem::Policy{}.failure_retention;
  const bool changed = change_record(
      audit, *store,
      {.command = "release", .key = key.text(), .why = options.reason, .before = to_json(seen)},
      key, [&] {
        const auto outcome = store->release(key, seen.ownership, retention);
        if (outcome == idem::ReleaseOutcome::unknown) {
          throw idem::Error(idem::Errc::store_reply_lost, "the store did not answer");
        }
        return outcome == idem::ReleaseOutcome::released;
      });
  return tell(settings, *store, key, changed);
}

Exit purge(const Settings& settings, const PurgeOptions& options) {
  const auto store = open(settings);
  idem::PurgerOptions pacing;
  pacing.batch = options.batch;
  pacing.pause = parse_duration(options.pause);
  pacing.on_batch = progress(settings);
  idem::Purger purger(*store, pacing);
  const Audit audit(settings);
  confirm(settings, "Remove all records of " + without_password(settings.store) +
                        " that are past their retention?");
  const idem::PurgeReport report = purger.run_once();
  if (pacing.on_batch) std::fputc('\n', stderr);
  const Json json{{"removed", report.removed},
                  {"batches", report.batches},
                  {"failures", report.failures},
                  {"milliseconds", report.took.count()},
                  {"complete", !report.ended_early}};
  audit.write({.command = "purge",
               .key = {},
               .why = options.reason,
               .after = json,
               .outcome = report.ended_early ? "ended early" : "complete"});
  if (settings.json) {
    std::cout << line_of(json) << std::endl;
  } else {
    std::cout << report.removed << " records removed in " << to_text(report.took) << std::endl;
  }
  if (report.ended_early) throw Ending(Exit::store, "the store does not answer: there may be more");
  return Exit::done;
}

}  // namespace idempotencyctl
