#include <sys/statfs.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "commands.hpp"
#include "store_access.hpp"
#include "text.hpp"

namespace idempotencyctl {

using std::chrono::milliseconds;

namespace {

/// The name of a file system on which records are lost or locks do not hold; empty for all others.
std::string file_system_of(const std::string& path) {
  struct statfs about {};
  if (::statfs(path.c_str(), &about) != 0) return {};
  switch (static_cast<unsigned long>(about.f_type) & 0xffffffffUL) {  // statfs(2)
    case 0x01021994UL:
      return "tmpfs";
    case 0x858458f6UL:
      return "ramfs";
    case 0x6969UL:
      return "NFS";
    case 0x65735546UL:
      return "FUSE";
    case 0xff534d42UL:
    case 0xfe534d42UL:
    case 0x517bUL:
      return "SMB";
    default:
      return {};
  }
}

/// What was found about a store, in words.
struct Finding {
  std::vector<std::string> hazards;
  std::vector<std::string> notes;
  idem::StoreStatistics counts = {};
  milliseconds answer{0};
};

/// Records that say processing although their lease ran out long ago; `now` is the store's. Looks at `most` at most.
std::size_t count_silent(idem::AnyAdminStore& store, idem::Timestamp now) {
  constexpr std::size_t page_size = 500;
  constexpr std::size_t most = 20'000;
  const idem::Timestamp long_ago = now - std::chrono::minutes{10};
  std::size_t silent = 0;
  std::size_t seen = 0;
  std::string cursor;
  do {
    const idem::RecordPage page =
        store.list({.state = idem::RecordState::processing}, cursor, page_size);
    seen += page.records.size();
    silent += static_cast<std::size_t>(
        std::count_if(page.records.begin(), page.records.end(), [&](const idem::Record& record) {
          return record.lease_until && *record.lease_until < long_ago;
        }));
    cursor = page.cursor;
  } while (!cursor.empty() && seen < most);
  return silent;
}

std::size_t count_uncertain_for(idem::AnyAdminStore& store, milliseconds span) {
  constexpr std::size_t enough = 1'000;
  return store.list({.state = idem::RecordState::uncertain, .unchanged_for = span}, {}, enough)
      .records.size();
}

void examine_file(const Settings& settings, Finding& found) {
  const std::string system = file_system_of(sqlite_path(settings));
  if (system == "tmpfs" || system == "ramfs") {
    found.hazards.push_back("the file is on " + system +
                            ", in memory: all records are lost when the host starts anew");
  } else if (!system.empty()) {
    found.hazards.push_back("the file is on " + system +
                            ", whose locks may not hold between processes or hosts: two calls can "
                            "run at once, and the file can be damaged");
  }
  found.notes.emplace_back(
      "how durable the commits of other processes are cannot be seen here: each process chooses "
      "that for itself (SqliteOptions)");
}

Finding examine(const Settings& settings) {
  Finding found;
  Hazards hazards;
  const auto store = open(settings, &hazards);
  const auto start = std::chrono::steady_clock::now();
  static_cast<void>(store->find({"doctor", "no such record"}));  // some servers are looked at now
  found.answer = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start);
  found.counts = store->admin()->statistics();
  found.hazards = hazards.all();
  if (schema_of(settings.store) == SchemaKind::sqlite) examine_file(settings, found);
  const milliseconds hour = std::chrono::hours{1};
  if (const std::size_t count = count_uncertain_for(*store->admin(), hour); count > 0) {
    found.notes.push_back(std::to_string(count) +
                          " or more records have been uncertain for an hour: is a reconciler "
                          "running? `list --state uncertain` shows them, `resolve` settles them");
  }
  if (const std::size_t count = count_silent(*store->admin(), store.now()); count > 0) {
    found.notes.push_back(std::to_string(count) +
                          " records say processing, but their leases ran out more than ten minutes "
                          "ago: their owners died, and nobody has asked for them since");
  }
  if (found.answer > milliseconds{1'000}) {
    found.notes.push_back("a look-up took " + to_text(found.answer) +
                          ": leases should be several times as long");
  }
  return found;
}

}  // namespace

Exit doctor(const Settings& settings) {
  const Finding found = examine(settings);
  if (settings.json) {
    std::cout << line_of({{"store", without_password(settings.store)},
                          {"hazards", found.hazards},
                          {"notes", found.notes},
                          {"counts", to_json(found.counts)},
                          {"answer_milliseconds", found.answer.count()}})
              << std::endl;
  } else {
    std::cout << "store     " << without_password(settings.store) << '\n'
              << "answered  in " << to_text(found.answer) << '\n'
              << "records   " << found.counts.processing << " processing, " << found.counts.success
              << " success, " << found.counts.failed << " failed, " << found.counts.uncertain
              << " uncertain, " << found.counts.issued << " issued\n";
    for (const std::string& hazard : found.hazards)
      std::cout << "HAZARD    " << printable(hazard) << '\n';
    for (const std::string& note : found.notes)
      std::cout << "note      " << note << '\n';
    if (found.hazards.empty()) std::cout << "nothing in the set-up that could lose records\n";
    std::cout << std::flush;
  }
  return found.hazards.empty() ? Exit::done : Exit::hazards;
}

}  // namespace idempotencyctl
