# bash completion for idempotencyctl

_idempotencyctl() {
  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD - 1]}"
  local commands="get list stats watch key doctor resolve release purge schema serve"
  local everywhere="--store --table-prefix --json --yes --audit-file --who --help --version"
  local word command="" sub="" words=""
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$word" in
      get | list | stats | watch | key | doctor | resolve | release | purge | schema | serve)
        [ -z "$command" ] && command="$word"
        ;;
      print | check | migrate) sub="$word" ;;
    esac
  done
  case "$previous" in
    --state)
      mapfile -t COMPREPLY < <(compgen -W "processing success failed uncertain issued" -- "$current")
      return
      ;;
    --dialect)
      mapfile -t COMPREPLY < <(compgen -W "sqlite mysql" -- "$current")
      return
      ;;
    --audit-file | --result | --result-file | --http-body | --policies | --token-file)
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      return
      ;;
    --store)
      mapfile -t COMPREPLY < <(compgen -W "sqlite: redis:// rediss:// unix:// mysql://" -- "$current")
      return
      ;;
  esac
  case "$command" in
    "") words="$commands" ;;
    get) words="--result-file" ;;
    list) words="--type --state --older-than --after --limit" ;;
    watch) words="--every --times" ;;
    key) words="--digested --derived" ;;
    resolve)
      words="--success --failed --retry --result --result-text --result-json --http-status --http-header --http-body --retention --policies --fence --margin --force --reason"
      ;;
    release) words="--force --policies --reason" ;;
    purge) words="--batch --pause --reason" ;;
    serve)
      words="--listen --token-file --allowed-host --metrics --every --metrics-every --margin --policies --show-results --insecure"
      ;;
    schema)
      case "$sub" in
        "") words="print check migrate" ;;
        print) words="--dialect" ;;
      esac
      ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words $everywhere" -- "$current")
}
complete -F _idempotencyctl idempotencyctl
