#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <idempotency/operations/purger.hpp>
#include <iostream>
#include <iterator>
#include <vector>

#include "audit.hpp"
#include "commands.hpp"
#include "settle.hpp"
#include "store_access.hpp"
#include "text.hpp"

namespace idempotencyctl {

using std::chrono::milliseconds;
using Verdict = idem::Resolution::Verdict;

namespace {

idem::Record record_of(idem::AnyStore& store, const idem::Key& key) {
  std::optional<idem::Record> record = store.find(key);
  if (!record) throw Ending(Exit::absent, "there is no record of " + printable(key.text()));
  return *std::move(record);
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
  const milliseconds margin =
      options.margin.empty() ? default_margin : parse_duration(options.margin);
  const auto store = open(settings);
  const idem::Record seen = record_of(*store, key);
  if (options.fence != 0 && seen.ownership.fence != options.fence) {
    throw Ending(Exit::refused, "nothing was changed: the record is at fence " +
                                    std::to_string(seen.ownership.fence));
  }
  const idem::Timestamp now = store.now();
  check_unsettled(seen, now);
  if (options.retry && !options.force) check_retry(seen, now, margin);
  const Audit audit(settings);
  confirm(settings, question_of(seen, options));
  const bool changed =
      settle(audit, *store, seen, resolution,
             {.command = options.force ? "resolve --force" : "resolve", .why = options.reason});
  return tell(settings, *store, key, changed);
}

Exit release(const Settings& settings, const ReleaseOptions& options) {
  const idem::Key key = parse_key(options.key);
  check_reason(options.reason);
  const auto store = open(settings);
  const idem::Record seen = record_of(*store, key);
  check_release(seen, options.force ? Doubt::accept : Doubt::refuse);
  const Audit audit(settings);
  confirm(settings, "Take " + printable(key.text()) +
                        " from its owner, which may be at work, so that the next call runs it?");
  const bool changed =
      release_seen(audit, *store, seen, {.command = "release", .why = options.reason});
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
