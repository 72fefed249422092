/* The bugs that can be planted, one a run: spin -DBUG=<name>. README.md says what each one does. */

/* in store.pml */
#define complete_without_owner_check 1
#define fence_not_checked 2
#define owner_not_checked 3
#define release_without_owner_check 4
#define ended_token_acquires_again 5
#define resolver_leaves_owner 6
#define resolver_does_not_look_at_the_fence 7
#define callers_policy_judges 8
#define effect_mark_ignored 9
#define renewal_rewrites_the_record 10
#define renewal_after_the_end 11
#define stored_result_overwritten 12
#define late_failure_replaces_result 13
#define fence_kept_on_takeover 14
#define uncertain_taken_over 15
#define unfinished_record_expires 16
#define purge_takes_unfinished 17
#define purge_ignores_retention 18
#define unknown_token_admitted 19
#define resolver_compares_the_fence_only 20
/* in record.pml */
#define takeover_by_read_then_write 30
#define purge_by_read_then_delete 31
#define effect_before_mark_is_stored 32
/* in waiting.pml */
#define waiter_never_woken 50
#define every_waiter_promoted 51
#define owner_leaves_without_successor 52
#define deadline_keeps_place_in_line 53
#define failure_delivered_as_empty_success 54
#define joined_by_key_alone 55
#define delivered_before_stored 56
/* in transaction.pml */
#define effect_committed_first 70
#define record_committed_first 71
#define unknown_commit_settled_by_reading 72
#define unknown_commit_taken_for_rollback 73
#define begin_does_not_block 74
#define published_before_commit 75
#define business_kept_on_permanent_failure 76
#define failure_recorded_under_hold 77

#ifndef BUG
#define BUG -1
#elif BUG == 0
#error "no bug of this name"
#endif
