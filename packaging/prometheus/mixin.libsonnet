// The rules and the dashboard for whoever builds Prometheus and Grafana with jsonnet (0.18 or later, for std.parseYaml):
//
//     (import 'mixin.libsonnet') + { _config+:: { runbookURL: 'https://wiki/volhold#%s', severities: { critical: 'page' } } }
//
// It reads volhold.rules.yml and dashboard.json as they are, so it can say nothing else than they do.
{
  _config+:: {
    // Where the pages about alerts are: %s stands for the alert's name in lower case. null: the link that the rule has.
    runbookURL: null,
    // Other words for the severities `critical`, `warning` and `info`.
    severities: {},
    // Labels that every alert gets.
    labels: {},
  },

  local config = self._config,
  local own(rule) = rule {
    labels+: config.labels {
      severity: std.get(config.severities, rule.labels.severity, rule.labels.severity),
    },
    annotations+: if config.runbookURL == null then {} else {
      runbook_url: config.runbookURL % std.asciiLower(rule.alert),
    },
  },

  prometheusAlerts+:: {
    groups+: [
      group { rules: [own(rule) for rule in group.rules] }
      for group in std.parseYaml(importstr 'volhold.rules.yml').groups
    ],
  },

  grafanaDashboards+:: {
    'volhold.json': import 'dashboard.json',
  },
}
