/* The table of include/idempotency/transition.hpp, written by the test ModelTable (tests/model). Do not edit:
 * change the table, then run the test with IDEMPOTENCY_REWRITE_MODEL_TABLE=1.
 *
 * transition_<event>(from, own, run_out, on_hold) sets next_*; every combination has one row. `own`: the caller is
 * the record's owner (for writes: at its fence; for resolve: the fence is the one seen). */
mtype = { phase_absent, phase_processing, phase_success, phase_failed_retryable, phase_failed_permanent, phase_uncertain, phase_issued };
mtype = { answer_acquired, answer_in_progress, answer_completed, answer_failed, answer_uncertain, answer_stored, answer_lost };
mtype = { fence_keep, fence_first, fence_next };
mtype = { owner_keep, owner_caller };
mtype = { lease_keep, lease_start, lease_clear };

hidden mtype next_phase, next_answer, next_fence, next_owner, next_lease;

inline row(phase_, answer_, fence_, owner_, lease_) {
  next_phase = phase_; next_answer = answer_; next_fence = fence_; next_owner = owner_; next_lease = lease_
}

inline transition_begin(from, own, run_out, on_hold) {
  if
  :: from == phase_absent -> row(phase_processing, answer_acquired, fence_first, owner_caller, lease_start)
  :: from == phase_processing && !(own) && !(run_out) -> row(phase_processing, answer_in_progress, fence_keep, owner_keep, lease_keep)
  :: from == phase_processing && !(own) && (run_out) && !(on_hold) -> row(phase_processing, answer_acquired, fence_next, owner_caller, lease_start)
  :: from == phase_processing && !(own) && (run_out) && (on_hold) -> row(phase_uncertain, answer_uncertain, fence_keep, owner_keep, lease_clear)
  :: from == phase_processing && (own) -> row(phase_processing, answer_acquired, fence_keep, owner_keep, lease_start)
  :: from == phase_success -> row(phase_success, answer_completed, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_retryable && !(own) -> row(phase_processing, answer_acquired, fence_next, owner_caller, lease_start)
  :: from == phase_failed_retryable && (own) -> row(phase_failed_retryable, answer_failed, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_permanent -> row(phase_failed_permanent, answer_failed, fence_keep, owner_keep, lease_keep)
  :: from == phase_uncertain -> row(phase_uncertain, answer_uncertain, fence_keep, owner_keep, lease_keep)
  :: from == phase_issued -> row(phase_issued, answer_lost, fence_keep, owner_keep, lease_keep)
  fi
}

inline transition_begin_issued(from, own, run_out, on_hold) {
  if
  :: from == phase_absent -> row(phase_absent, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_processing && !(own) && !(run_out) -> row(phase_processing, answer_in_progress, fence_keep, owner_keep, lease_keep)
  :: from == phase_processing && !(own) && (run_out) && !(on_hold) -> row(phase_processing, answer_acquired, fence_next, owner_caller, lease_start)
  :: from == phase_processing && !(own) && (run_out) && (on_hold) -> row(phase_uncertain, answer_uncertain, fence_keep, owner_keep, lease_clear)
  :: from == phase_processing && (own) -> row(phase_processing, answer_acquired, fence_keep, owner_keep, lease_start)
  :: from == phase_success -> row(phase_success, answer_completed, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_retryable && !(own) -> row(phase_processing, answer_acquired, fence_next, owner_caller, lease_start)
  :: from == phase_failed_retryable && (own) -> row(phase_failed_retryable, answer_failed, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_permanent -> row(phase_failed_permanent, answer_failed, fence_keep, owner_keep, lease_keep)
  :: from == phase_uncertain -> row(phase_uncertain, answer_uncertain, fence_keep, owner_keep, lease_keep)
  :: from == phase_issued -> row(phase_processing, answer_acquired, fence_first, owner_caller, lease_start)
  fi
}

inline transition_renew(from, own, run_out, on_hold) {
  if
  :: from == phase_absent -> row(phase_absent, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_processing && !(own) -> row(phase_processing, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_processing && (own) -> row(phase_processing, answer_stored, fence_keep, owner_keep, lease_start)
  :: from == phase_success -> row(phase_success, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_retryable -> row(phase_failed_retryable, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_permanent -> row(phase_failed_permanent, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_uncertain -> row(phase_uncertain, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_issued -> row(phase_issued, answer_lost, fence_keep, owner_keep, lease_keep)
  fi
}

inline transition_mark_effect(from, own, run_out, on_hold) {
  if
  :: from == phase_absent -> row(phase_absent, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_processing && !(own) -> row(phase_processing, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_processing && (own) -> row(phase_processing, answer_stored, fence_keep, owner_keep, lease_keep)
  :: from == phase_success -> row(phase_success, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_retryable -> row(phase_failed_retryable, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_permanent -> row(phase_failed_permanent, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_uncertain -> row(phase_uncertain, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_issued -> row(phase_issued, answer_lost, fence_keep, owner_keep, lease_keep)
  fi
}

inline transition_complete(from, own, run_out, on_hold) {
  if
  :: from == phase_absent -> row(phase_absent, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_processing && !(own) -> row(phase_processing, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_processing && (own) -> row(phase_success, answer_stored, fence_keep, owner_keep, lease_clear)
  :: from == phase_success && !(own) -> row(phase_success, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_success && (own) -> row(phase_success, answer_stored, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_retryable -> row(phase_failed_retryable, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_permanent -> row(phase_failed_permanent, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_uncertain && !(own) -> row(phase_uncertain, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_uncertain && (own) -> row(phase_success, answer_stored, fence_keep, owner_keep, lease_clear)
  :: from == phase_issued -> row(phase_issued, answer_lost, fence_keep, owner_keep, lease_keep)
  fi
}

inline transition_fail_retryable(from, own, run_out, on_hold) {
  if
  :: from == phase_absent -> row(phase_absent, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_processing && !(own) -> row(phase_processing, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_processing && (own) -> row(phase_failed_retryable, answer_stored, fence_keep, owner_keep, lease_clear)
  :: from == phase_success -> row(phase_success, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_retryable && !(own) -> row(phase_failed_retryable, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_retryable && (own) -> row(phase_failed_retryable, answer_stored, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_permanent -> row(phase_failed_permanent, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_uncertain && !(own) -> row(phase_uncertain, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_uncertain && (own) -> row(phase_failed_retryable, answer_stored, fence_keep, owner_keep, lease_clear)
  :: from == phase_issued -> row(phase_issued, answer_lost, fence_keep, owner_keep, lease_keep)
  fi
}

inline transition_fail_permanent(from, own, run_out, on_hold) {
  if
  :: from == phase_absent -> row(phase_absent, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_processing && !(own) -> row(phase_processing, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_processing && (own) -> row(phase_failed_permanent, answer_stored, fence_keep, owner_keep, lease_clear)
  :: from == phase_success -> row(phase_success, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_retryable -> row(phase_failed_retryable, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_permanent && !(own) -> row(phase_failed_permanent, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_permanent && (own) -> row(phase_failed_permanent, answer_stored, fence_keep, owner_keep, lease_keep)
  :: from == phase_uncertain && !(own) -> row(phase_uncertain, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_uncertain && (own) -> row(phase_failed_permanent, answer_stored, fence_keep, owner_keep, lease_clear)
  :: from == phase_issued -> row(phase_issued, answer_lost, fence_keep, owner_keep, lease_keep)
  fi
}

inline transition_doubt(from, own, run_out, on_hold) {
  if
  :: from == phase_absent -> row(phase_absent, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_processing && !(own) -> row(phase_processing, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_processing && (own) -> row(phase_uncertain, answer_stored, fence_keep, owner_keep, lease_clear)
  :: from == phase_success -> row(phase_success, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_retryable -> row(phase_failed_retryable, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_permanent -> row(phase_failed_permanent, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_uncertain && !(own) -> row(phase_uncertain, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_uncertain && (own) -> row(phase_uncertain, answer_stored, fence_keep, owner_keep, lease_keep)
  :: from == phase_issued -> row(phase_issued, answer_lost, fence_keep, owner_keep, lease_keep)
  fi
}

inline transition_release(from, own, run_out, on_hold) {
  if
  :: from == phase_absent -> row(phase_absent, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_processing && !(own) -> row(phase_processing, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_processing && (own) -> row(phase_failed_retryable, answer_stored, fence_keep, owner_keep, lease_clear)
  :: from == phase_success -> row(phase_success, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_retryable && !(own) -> row(phase_failed_retryable, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_retryable && (own) -> row(phase_failed_retryable, answer_stored, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_permanent -> row(phase_failed_permanent, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_uncertain -> row(phase_uncertain, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_issued -> row(phase_issued, answer_lost, fence_keep, owner_keep, lease_keep)
  fi
}

inline transition_resolve_success(from, own, run_out, on_hold) {
  if
  :: from == phase_absent -> row(phase_absent, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_processing && !(own) -> row(phase_processing, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_processing && (own) && !(run_out) -> row(phase_processing, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_processing && (own) && (run_out) -> row(phase_success, answer_stored, fence_next, owner_caller, lease_clear)
  :: from == phase_success -> row(phase_success, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_retryable -> row(phase_failed_retryable, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_permanent -> row(phase_failed_permanent, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_uncertain && !(own) -> row(phase_uncertain, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_uncertain && (own) -> row(phase_success, answer_stored, fence_next, owner_caller, lease_clear)
  :: from == phase_issued -> row(phase_issued, answer_lost, fence_keep, owner_keep, lease_keep)
  fi
}

inline transition_resolve_failed(from, own, run_out, on_hold) {
  if
  :: from == phase_absent -> row(phase_absent, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_processing && !(own) -> row(phase_processing, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_processing && (own) && !(run_out) -> row(phase_processing, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_processing && (own) && (run_out) -> row(phase_failed_permanent, answer_stored, fence_next, owner_caller, lease_clear)
  :: from == phase_success -> row(phase_success, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_retryable -> row(phase_failed_retryable, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_permanent -> row(phase_failed_permanent, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_uncertain && !(own) -> row(phase_uncertain, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_uncertain && (own) -> row(phase_failed_permanent, answer_stored, fence_next, owner_caller, lease_clear)
  :: from == phase_issued -> row(phase_issued, answer_lost, fence_keep, owner_keep, lease_keep)
  fi
}

inline transition_resolve_retry(from, own, run_out, on_hold) {
  if
  :: from == phase_absent -> row(phase_absent, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_processing && !(own) -> row(phase_processing, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_processing && (own) && !(run_out) -> row(phase_processing, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_processing && (own) && (run_out) -> row(phase_failed_retryable, answer_stored, fence_next, owner_caller, lease_clear)
  :: from == phase_success -> row(phase_success, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_retryable -> row(phase_failed_retryable, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_permanent -> row(phase_failed_permanent, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_uncertain && !(own) -> row(phase_uncertain, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_uncertain && (own) -> row(phase_failed_retryable, answer_stored, fence_next, owner_caller, lease_clear)
  :: from == phase_issued -> row(phase_issued, answer_lost, fence_keep, owner_keep, lease_keep)
  fi
}

inline transition_issue(from, own, run_out, on_hold) {
  if
  :: from == phase_absent -> row(phase_issued, answer_stored, fence_keep, owner_caller, lease_clear)
  :: from == phase_processing -> row(phase_processing, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_success -> row(phase_success, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_retryable -> row(phase_failed_retryable, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_failed_permanent -> row(phase_failed_permanent, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_uncertain -> row(phase_uncertain, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_issued && !(own) -> row(phase_issued, answer_lost, fence_keep, owner_keep, lease_keep)
  :: from == phase_issued && (own) -> row(phase_issued, answer_stored, fence_keep, owner_keep, lease_keep)
  fi
}
