"""Every table of headcount macs as a reader meets it: headings, what stands below them, and what a terminal has room
for."""

import re
import shlex

import pytest

from headcount.bench.macs.__main__ import parser, plan
from tests.bench.output.typed import described, typed

LEDGER = """
    module                       text         always
    kind                         text         80
    sizes                        text         wide
    MACs                         MACs         always
    share %                      0.33         80
    elements                     elements     wide
    params                       params       80
    params active                params       wide
"""
BY_KIND = """
    kind                         text         always
    MACs                         MACs         always
    share %                      0.33         80
    elements                     elements     80
    params                       params       80
    params active                params       80
"""
STEPS = """
    rule A                       MACs         80
    rule B                       MACs         80
    rule A - B                ±MACs        always
    rule running total           MACs         80
    exact A                      MACs         80
    exact B                      MACs         80
    exact A - B               ±MACs        always
    exact running total          MACs         wide
"""
PUBLISHED = {
    "moa-table1": """
        moa-table1: WMT14 translation
        row                              text         always
        params printed En-De             text, right  wide
        params printed En-Fr             text, right  wide
        params exact                     params       wide
        params active                    params       wide
        MACs printed                     text, right  always
        MACs under the rule              MACs         80
        MACs exact                       MACs         always
        verdict                          verdict      always
    """,
    "moa-table1-vocabulary": """
        moa-table1: vocabularies that the printed parameters imply
        row                              text         always
        params printed En-De             text, right  wide
        vocabulary En-De from            integer      always
        to                               integer      always
        params printed En-Fr             text, right  wide
        vocabulary En-Fr from            integer      always
        to                               integer      always
    """,
    "moh-llm": """
        moh-llm: language models from scratch
        row                              text         always
        params printed                   text, right  wide
        params exact trainable           params       wide
        params exact with frozen         params       wide
        activated printed                text, right  always
        activated by number %            0.33         always
        activated by work %              0.33         wide
        MACs dense baseline              MACs         wide
        MACs MoH as released             MACs         wide
        MACs MoH ideal                   MACs         80
        ideal / baseline                 0.3333       80
        verdict                          verdict      always
    """,
    "jetmoe": """
        jetmoe: JetMoE-8B
        row                              text         always
        params printed                   text, right  80
        params exact                     params       80
        params active                    params       80
        active printed                   text, right  always
        active, without the embedding    params       always
        verdict                          verdict      always
    """,
}
COMMANDS = {
    "--table moa-table1 moh-llm jetmoe --params --counter closed-form": PUBLISHED,
    "--table moa-table2 --params --counter closed-form": {
        "moa-table2": """
            moa-table2: WikiText-103 masked language modelling
            row                          text         always
            params printed               text, right  80
            params exact                 params       80
            params active                params       wide
            MACs printed                 text, right  always
            MACs under the rule          MACs         80
            MACs exact                   MACs         always
            verdict                      verdict      always
        """,
        "moa-table2-vocabulary": """
            moa-table2: vocabularies that the printed parameters imply
            row                          text         always
            params printed               text, right  80
            vocabulary from              integer      always
            to                           integer      always
        """,
    },
    "--table moh-table6 --counter torch ptflops-pytorch": {
        "moh-table6": """
            moh-table6: share of shared heads, all at 75 % of heads
            row                          text         always
            params counted trainable     params       wide
            params counted with frozen   params       wide
            activated printed            text, right  always
            activated by number %        0.33         always
            activated by work %          0.33         wide
            MACs dense baseline          MACs         wide
            MACs MoH as released         MACs         wide
            MACs MoH ideal               MACs         wide
            ideal / baseline             0.3333       wide
            shared printed               text, right  wide
            shared of activated %        0.33         wide
            ptflops pytorch              MACs         wide
            torch                        MACs         wide
            verdict                      verdict      always
        """
    },
    "--preset mlm-transformer --seq-len 7 --counter ptflops-aten": {
        "mlm-transformer": f"mlm-transformer: ledger {LEDGER}",
        "mlm-transformer-kinds": f"mlm-transformer: by kind {BY_KIND}",
        "mlm-transformer-counters": """
            mlm-transformer: counters
            counter                      text          always
            device                       text          80
            reported MACs                MACs          always
            error vs exact               ±MACs         always
            what it adds, by name        text, broken  always
            explained by its rules       verdict       always
        """,
        "mlm-transformer-causes": """
            mlm-transformer: where each tool's error comes from
            counter                      text          always
            MACs                         ±MACs         always
            what                         text          80
            call                         text, broken  always
            calls                        integer       wide
            place in the tool's source   text, broken  80
        """,
    },
    "--preset transformer-base --columns kv_bytes decode_macs --element-bytes 4 --brief --counter closed-form": {
        "transformer-base": f"transformer-base: ledger {LEDGER}",
        "transformer-base-kinds": f"transformer-base: by kind {BY_KIND}",
        "memory": """
            transformer-base: memory and decoding
            preset                       text         always
            KV cache bytes, 4 each       bytes        80
            decode step MACs             MACs         80
        """,
    },
    "--grid 'K=2 E=3 D=5 T=7' --counter torch": {
        "grid": """
            MixtureOfAttentionHeads: one layer, without biases
            K                            integer      always
            E                            integer      always
            D                            integer      always
            T                            integer      always
            Eq. 18                       MACs         80
            + second T*S product         MACs         wide
            + router                     MACs         wide
            = exact                      MACs         always
            torch                        MACs         wide
            params                       params       wide
            params active                params       wide
            Eq. 19 same d_m              MACs         wide
            exact / MHA same d_m         0.3333       80
            exact / MHA same inner width  0.3333      always
        """
    },
    "--grid 'h=7 s=2 r=3 d_h=5 T=11' --counter closed-form": {
        "grid": """
            MixtureOfHeadAttention: one layer, without biases
            h                            integer      always
            s                            integer      always
            r                            integer      always
            d_h                          integer      always
            T                            integer      always
            of which routers             MACs         wide
            MACs as released             MACs         always
            MACs ideal                   MACs         always
            params                       params       wide
            params active                params       wide
            Eq. 19 same d_m              MACs         wide
            exact / MHA same d_m         0.3333       80
            exact / MHA same inner width  0.3333      always
            ideal / MHA same h, g        0.3333       wide
        """
    },
    "--grid 'h=2 E=3 K=2 d_h=5 T=7' --counter closed-form": {
        "grid": """
            SwitchHead: one layer, without biases
            h                            integer      always
            E                            integer      always
            K                            integer      always
            d_h                          integer      always
            T                            integer      always
            of which routers             MACs         80
            MACs exact                   MACs         always
            params                       params       80
            params active                params       wide
            Eq. 19 same d_m              MACs         wide
            exact / MHA same d_m         0.3333       80
            exact / MHA same inner width  0.3333      always
        """
    },
    "--compare moa-8K8E128D transformer-base --counter closed-form": {
        "compare-block": f"moa-8K8E128D against transformer-base: MACs by block\nblock  text  always {STEPS}",
        "compare-kind": f"moa-8K8E128D against transformer-base: MACs by kind\nkind  text  always {STEPS}",
        "compare-params": """
            moa-8K8E128D against transformer-base: parameters by block
            block                        text         always
            params A                     params       80
            params B                     params       80
            params A - B                 ±params      always
            active A                     params       80
            active B                     params       80
            active A - B                 ±params      always
        """,
        "compare-turns": """
            moa-8K8E128D against transformer-base: crossovers
            account                      text          always
            letter                       text          always
            A - B                        text, broken  80
            last at                      integer       always
            A - B there                  ±MACs         wide
            first at                     integer       always
            A - B there                  ±MACs         wide
            counted there                text          always
        """,
    },
    "--preset llama3-8b --convert s=16 r=8": {
        "conversion": """
            llama3-8b as mixture-of-head attention
            form                         text         always
            MACs                         MACs         always
            of dense %                   0.33         always
            training step MACs           MACs         80
            params                       params       80
        """,
        "stages": """
            llama3-8b: training on
            stage                        integer      always
            model                        text         80
            form                         text         always
            tokens                       tokens       80
            training MACs                MACs         always
        """,
    },
    "--audit --device meta --counter torch": {
        "audit": """
            audit: error of each counter
            formulation                  text            always
            written with                 text, broken    wide
            device                       text            always
            MACs exact                   MACs            80
            headcount                    ±MACs or text   always
            torch                        ±MACs or text   80
        """,
        "audit-causes": """
            audit: where each tool's error comes from
            counter                      text            always
            error vs exact               ±MACs           80
            of which                     ±MACs           always
            what                         text            wide
            call                         text, broken    always
            calls                        integer         wide
            place in the tool's source   text, broken    wide
            formulations and devices     text, broken    wide
        """,
    },
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_table_has_this_title_and_these_columns_and_a_terminal_keeps_these(command):
    sections = list(plan(parser().parse_args(shlex.split(command))).sections)
    found = [(section.table.name, *line) for section in sections for line in described(section)]
    assert found == [(name, *line) for name, text in COMMANDS[command].items() for line in typed(text)]
    for note in (note for section in sections for note in section.table.notes_above):
        assert re.match(r"([A-Z0-9]|d_m = |rule: |exact: ).*[.]$", note) and note != note.upper(), note
        assert not re.search(r"[a-z)][.] [a-z]", note), note
