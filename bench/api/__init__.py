"""What ``import headcount as hc`` counts with: ``hc.count``, ``hc.summary`` and ``hc.assert_macs``, a file each."""
